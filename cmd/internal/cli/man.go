package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// newManual returns a command that writes manual pages, for packages.
func newManual(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "man DIR", Short: "Write manual pages into a directory", Hidden: true, Args: cobra.ExactArgs(1),
		// The checks that a program makes before its commands are not needed here.
		PersistentPreRunE: func(*cobra.Command, []string) error { return nil },
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true
			walkCommands(root, func(c *cobra.Command) {
				c.Hidden = c.Hidden || c.Name() == "completion" // cobra's own
				for _, t := range topicsOf(c) {
					c.Long += "\n\n" + t.Text
				}
				c.Long = toMarkdown(c.Long)
				c.LocalFlags().VisitAll(showDefault)
			})
			if err := doc.GenManTree(root, &doc.GenManHeader{
				Title: strings.ToUpper(root.Name()), Section: "1", Source: "gloom " + root.Version, Manual: "Gloom",
			}, args[0]); err != nil {
				return err
			}
			var err error
			walkCommands(root, func(c *cobra.Command) {
				page := filepath.Join(args[0], strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
				if _, missing := os.Stat(page); missing == nil {
					err = errors.Join(err, finishPage(page, c.LocalFlags()))
				}
			})
			return err
		},
		DisableFlagsInUseLine: true,
	}
}

var (
	manFlagLine = regexp.MustCompile(`^(?:\\fB-.\\fP, )?\\fB--([\w-]+)\\fP`)
	manFlag     = regexp.MustCompile(`(?m)(?:^\.PP\n)?^((?:\\fB-.\\fP, )?\\fB--[\w-]+\\fP)(?:\[=false\]|(=)"([^"\n]*)"|(=.*))?\n\t`)
)

// finishPage improves what cobra makes of flags: it removes [=false] of flags without a value and the
// quotes around the kind of value, indents the text about a flag below it, and inserts the headings.
func finishPage(page string, f *pflag.FlagSet) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	plain := manFlag.ReplaceAllString(string(text), ".TP\n$1$2$3$4\n")
	plain = withHeadings(plain, f, manFlagLine, ".SS %s\n")
	// A heading comes before the mark of the paragraph.
	return os.WriteFile(page, []byte(headingInParagraph.ReplaceAllString(plain, "$1.TP\n")), 0o644)
}

var headingInParagraph = regexp.MustCompile(`(?m)^\.TP\n(\.SS .*\n)`)

// showDefault makes a page show the kind of value of a flag, and its default after the text:
// cobra shows the default instead of the kind.
func showDefault(f *pflag.Flag) {
	kind, text := pflag.UnquoteUsage(f)
	if kind == "" || f.NoOptDefVal != "" {
		return
	}
	if !slices.Contains([]string{"", "0", "0s", "[]", kind}, f.DefValue) {
		text += " (default " + f.DefValue + ")"
	}
	f.Usage, f.DefValue = text, kind
}

// toMarkdown makes Markdown of a text: it puts blank lines around indented lines, marks titles,
// which are lines such as "Failures:" at the beginning of a paragraph, and escapes other marks.
func toMarkdown(text string) string {
	var out []string
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		indented := strings.HasPrefix(line, "    ")
		isTitle := titleLine.MatchString(line) && (i == 0 || lines[i-1] == "") &&
			i+1 < len(lines) && lines[i+1] != "" && !strings.HasPrefix(lines[i+1], " ")
		if isTitle {
			out = append(out, "### "+strings.TrimSuffix(line, ":"), "")
			continue
		}
		if i > 0 && line != "" && out[len(out)-1] != "" && indented != strings.HasPrefix(out[len(out)-1], "    ") {
			out = append(out, "")
		}
		if !indented {
			line = markdownMark.ReplaceAllString(line, `\$0`)
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

var (
	titleLine    = regexp.MustCompile(`^[A-Z][\w ,-]{0,40}:$`)
	markdownMark = regexp.MustCompile("[_*`<]")
)
