package cli

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpWidth is the width of help in columns.
const helpWidth = 80

// headingAnnotation marks the first flag below each heading, with the heading.
const headingAnnotation = "heading"

// SetHeadings divides a long list of flags in help and manual pages: each heading stands above the
// flag that it is mapped to. It applies to this flag and to the flags defined after it, up to the
// next heading.
func SetHeadings(f *pflag.FlagSet, headings map[string]string) {
	for flag, heading := range headings {
		if err := f.SetAnnotation(flag, headingAnnotation, []string{heading}); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// withHeadings inserts headings into a text with a paragraph for each flag. flagLine matches the first
// line of a paragraph, and its submatch is the flag's name; format makes a line of the heading.
func withHeadings(text string, f *pflag.FlagSet, flagLine *regexp.Regexp, format string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if m := flagLine.FindStringSubmatch(line); m != nil {
			if flag := f.Lookup(m[1]); flag != nil && flag.Annotations[headingAnnotation] != nil {
				fmt.Fprintf(&out, format, flag.Annotations[headingAnnotation][0])
			}
		}
		out.WriteString(line)
	}
	return out.String()
}

var helpFlagLine = regexp.MustCompile(`^  (?:-., |    )--([\w-]+)`)

// flagList returns the lines of help for the flags, in the order of their definition, below their
// headings; flags before the first heading are below "Flags:".
func flagList(f *pflag.FlagSet) string {
	f.SortFlags = false
	list := withHeadings(f.FlagUsagesWrapped(helpWidth), f, helpFlagLine, "\n%s:\n")
	if strings.HasPrefix(list, " ") { // the first flag has no heading
		list = "Flags:\n" + list
	}
	return strings.TrimSpace(list)
}

// Topic is a part of a command's help that is too long for --help. The output of --help names the
// topic in one line. "PROGRAM help NAME" prints it, and the command's manual page contains it.
type Topic struct {
	Name  string
	Short string // what it is about, a line without a full stop
	Text  string
}

// flagsTopic is the topic that lists the flags of all commands. A root command with this topic does
// not list these flags in its own help.
const flagsTopic = "flags"

const flagsShort = "Flags that all commands take"

// topicAnnotation and a topic's name are the key of a command's annotation that holds the topic.
const topicAnnotation = "topic "

// SetTopics gives a command its topics. Their names must be unique in the program, and differ from
// the names of commands.
func SetTopics(c *cobra.Command, topics ...Topic) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	for _, t := range topics {
		c.Annotations[topicAnnotation+t.Name] = t.Short + "\n" + t.Text
	}
}

// topicsOf returns a command's topics by name.
func topicsOf(c *cobra.Command) []Topic {
	var list []Topic
	for _, key := range slices.Sorted(maps.Keys(c.Annotations)) {
		if name, ok := strings.CutPrefix(key, topicAnnotation); ok {
			short, text, _ := strings.Cut(c.Annotations[key], "\n")
			list = append(list, Topic{name, short, text})
		}
	}
	return list
}

func hasFlagsTopic(c *cobra.Command) bool { return c.Annotations[topicAnnotation+flagsTopic] != "" }

// allTopics returns the topics of all commands of a program by name.
func allTopics(root *cobra.Command) []Topic {
	var list []Topic
	walkCommands(root, func(c *cobra.Command) { list = append(list, topicsOf(c)...) })
	slices.SortFunc(list, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// addTopics makes "PROGRAM help" know the topics of all commands and, in every program with common
// flags, the topic that lists the common flags.
func addTopics(root *cobra.Command) {
	topics := allTopics(root)
	if !hasFlagsTopic(root) {
		topics = append(topics, Topic{Name: flagsTopic})
	}
	for _, t := range topics {
		if t.Name == flagsTopic {
			if !root.HasAvailableSubCommands() || !root.HasAvailablePersistentFlags() {
				continue
			}
			root.PersistentFlags().SortFlags = false
			t.Text += "\n\n" + flagList(root.PersistentFlags())
		}
		// Hidden, because --help names topics itself.
		root.AddCommand(&cobra.Command{Use: t.Name, Short: t.Short, Long: strings.TrimSpace(t.Text), Hidden: true})
	}
}

// topicLines returns the lines that end a command's help: the root's help names the topics of all
// commands, another command's help its own and the flags of all commands.
func topicLines(c *cobra.Command) string {
	topics := topicsOf(c)
	if c == c.Root() {
		topics = allTopics(c)
	} else if c.HasAvailableInheritedFlags() {
		topics = append(topics, Topic{Name: flagsTopic, Short: flagsShort})
	}
	var lines []string
	for _, t := range topics {
		lines = append(lines, t.Short+": "+c.Root().Name()+" help "+t.Name)
	}
	return strings.Join(lines, "\n")
}
