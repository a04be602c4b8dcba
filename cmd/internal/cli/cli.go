// Package cli contains what all command lines share: start and end, the sources of options, and
// output to terminals. It knows nothing of brokers.
package cli

import (
	"errors"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Execute runs a program's command line and returns its exit status. An error before a command has
// begun is a usage error, whatever its type.
func Execute(root *cobra.Command, args []string, stderr io.Writer) int {
	started := false
	Prepare(root)
	walkCommands(root, func(c *cobra.Command) {
		if run := c.RunE; run != nil {
			c.RunE = func(cmd *cobra.Command, args []string) error {
				started = true
				return run(cmd, args)
			}
		}
	})
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		plainUsages(root)
	} else if err := checkHelped(root, args); err != nil {
		return Report(stderr, root.Name(), err)
	}
	root.SetArgs(args)
	err := Run(root)
	var fault *Fault
	if err != nil && !started && !errors.As(err, &fault) {
		err = Usagef("%w", err).SetHint("%s --help shows the usage", root.Name())
	}
	return Report(stderr, root.Name(), err)
}

// checkHelped returns an error if --help is asked of a command that does not exist; cobra would print the
// help of the command above it.
func checkHelped(root *cobra.Command, args []string) error {
	found, rest, err := root.Find(args)
	asks := slices.Contains(rest, "--help") || slices.Contains(rest, "-h")
	if err != nil || !asks || !found.HasAvailableSubCommands() || strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], "__") {
		return nil
	}
	return unknownCommand(found, rest[0])
}

// plainUsages removes the marks around the names of flags' values, which completions would show.
func plainUsages(root *cobra.Command) {
	walkCommands(root, func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	})
}

// Run runs the command line of a prepared program. If help, a version or a completion script cannot
// be written, that is an error. The error is silent if the reader has gone.
func Run(root *cobra.Command) error {
	err := root.Execute()
	if out, ok := root.OutOrStdout().(*stickyWriter); ok && err == nil && out.firstErr != nil {
		if errors.Is(out.firstErr, syscall.EPIPE) {
			return SilentExit(ExitFailed)
		}
		return Failf(ExitFailed, "writing the output: %w", out.firstErr)
	}
	return err
}

// stickyWriter is the writer that cobra writes to. It keeps the first error, because cobra reports
// some write errors only as text, and other write errors not at all.
type stickyWriter struct {
	out      io.Writer
	firstErr error // the first error of a write
}

func (o *stickyWriter) Write(p []byte) (int, error) {
	if o.firstErr == nil {
		_, o.firstErr = o.out.Write(p)
	}
	return len(p), nil
}

// Prepare gives all programs the same conventions: the version, help of 80 columns with
// flags in order, manual pages, and an error with a suggestion for an unknown command
// or flag.
func Prepare(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetOut(&stickyWriter{out: root.OutOrStdout()})
	if root.Version == "" {
		root.Version = Version()
	}
	root.AddCommand(newManual(root))
	root.InitDefaultHelpCmd()
	addTopics(root)
	root.CompletionOptions.HiddenDefaultCmd = !root.HasAvailableSubCommands()
	root.InitDefaultCompletionCmd()
	walkCommands(root, func(c *cobra.Command) {
		c.Flags().SortFlags = false
		c.PersistentFlags().SortFlags = false
		switch {
		case c.Parent() != root:
		case c.Name() == "help":
			c.Short, c.Args = "Show the help of a command", checkTopic
			c.ValidArgsFunction = completeTopic(c.ValidArgsFunction)
		case c.Name() == "completion":
			c.Short = "Print the script that lets a shell complete commands"
		}
		if !c.Runnable() && c.HasSubCommands() {
			c.Args, c.RunE = cobra.ArbitraryArgs, runGroup
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if isChoice, ok := f.Value.(choiceFlag); ok {
				_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(isChoice.values, cobra.ShellCompDirectiveNoFileComp))
			}
		})
		if argsCheck := c.Args; argsCheck != nil {
			c.Args = func(cmd *cobra.Command, args []string) error { return argsError(cmd, args, argsCheck(cmd, args)) }
		}
	})
	root.SetFlagErrorFunc(flagError)
	cobra.AddTemplateFunc("ownFlags", func(c *cobra.Command) string {
		if hasFlagsTopic(c) {
			return flagList(c.LocalNonPersistentFlags())
		}
		return flagList(c.LocalFlags())
	})
	cobra.AddTemplateFunc("topicLines", topicLines)
	// The function writes "Flags:" or other headings itself; the lines about topics follow all flags.
	before, flags, _ := strings.Cut(root.UsageTemplate(), "\n\nFlags:\n")
	_, after, _ := strings.Cut(flags, "{{if .HasHelpSubCommands}}")
	usage := before + "\n\n{{ownFlags .}}{{end}}{{with topicLines .}}\n\n{{.}}{{end}}{{if .HasHelpSubCommands}}" + after
	usage = strings.Replace(usage, "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1)
	usage = strings.ReplaceAll(usage, "[command]", "COMMAND")
	// An alias is for those who guess it.
	usage = regexp.MustCompile(`(?s){{if gt \(len \.Aliases\) 0}}.*?{{end}}`).ReplaceAllString(usage, "")
	root.SetUsageTemplate(usage)
}

func walkCommands(c *cobra.Command, fn func(*cobra.Command)) {
	fn(c)
	for _, sub := range c.Commands() {
		walkCommands(sub, fn)
	}
}

// runGroup is a command that only contains other commands.
func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return unknownCommand(cmd, args[0])
}

func checkTopic(cmd *cobra.Command, args []string) error {
	found, rest, _ := cmd.Root().Find(args)
	if len(rest) == 0 || !found.HasSubCommands() {
		return nil
	}
	var topics []string
	if found == cmd.Root() {
		for _, t := range allTopics(found) {
			topics = append(topics, t.Name)
		}
	}
	return unknownCommand(found, rest[0], topics...)
}

// completeTopic completes the argument of help also with the names of topics.
func completeTopic(commands cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list, directive := commands(c, args, typed)
		if len(args) == 0 {
			for _, t := range allTopics(c.Root()) {
				if strings.HasPrefix(t.Name, typed) {
					list = append(list, cobra.CompletionWithDesc(t.Name, t.Short))
				}
			}
		}
		return list, directive
	}
}

// hintAnnotation followed by a word is the key of a command's annotation. The annotation is the
// hint for users who wrongly give the word as a command, an argument or a flag.
const hintAnnotation = "hint "

// SetWordHint sets the hint that is shown when a command is given a word or a flag (--word, -w) that it
// does not know.
func SetWordHint(c *cobra.Command, word, hint string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[hintAnnotation+word] = hint
}

// unknownCommand suggests a command, one below another command, a command with name as its argument,
// or one of the other names.
func unknownCommand(in *cobra.Command, name string, names ...string) error {
	f := Usagef("unknown command %q", strings.TrimPrefix(in.CommandPath()+" "+name, in.Root().Name()+" "))
	if hint := in.Annotations[hintAnnotation+name]; hint != "" {
		return f.SetHint("%s", hint)
	}
	for _, c := range in.Commands() {
		if slices.Contains(c.ValidArgs, name) {
			return f.SetHint("did you mean %s %s?", c.CommandPath(), name)
		}
		for _, below := range c.Commands() {
			if below.Name() == name {
				return f.SetHint("did you mean %s?", below.CommandPath())
			}
		}
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	if suggestion := Suggest(name, names); suggestion != "" {
		return f.SetHint("did you mean %s?", suggestion)
	}
	return f.SetHint("%s --help lists all commands", in.CommandPath())
}

// argsError explains that a command does not accept this number of arguments.
func argsError(cmd *cobra.Command, args []string, err error) error {
	var f *Fault
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case len(args) == 0:
		f = Usagef("%s needs an argument", cmd.Name())
	case cmd.HasAvailableSubCommands():
		return unknownCommand(cmd, args[0])
	default:
		last := args[len(args)-1]
		f = Usagef("unexpected argument %q", last)
		if hint := cmd.Annotations[hintAnnotation+last]; hint != "" {
			return f.SetHint("%s", hint)
		}
		if hint := addressHint(cmd); hint != "" && strings.ContainsAny(last, "0123456789") {
			return f.SetHint("%s", hint)
		}
	}
	return f.SetHint("%s", cmd.UseLine())
}

func flagError(cmd *cobra.Command, err error) error {
	var notExist *pflag.NotExistError
	var value *pflag.InvalidValueError
	var noValue *pflag.ValueRequiredError
	if errors.As(err, &notExist) {
		dashes := "--"
		if notExist.GetSpecifiedShortnames() != "" {
			dashes = "-"
		}
		if hint := cmd.Annotations[hintAnnotation+dashes+notExist.GetSpecifiedName()]; hint != "" {
			return Usagef("%w", err).SetHint("%s", hint)
		}
	}
	switch {
	case notExist != nil && notExist.GetSpecifiedShortnames() == "":
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if suggestion := Suggest(notExist.GetSpecifiedName(), names); suggestion != "" {
			return Usagef("%w", err).SetHint("did you mean --%s?", suggestion)
		}
		if hint := addressHint(cmd); hint != "" && slices.Contains([]string{"port", "host", "listen", "bind", "addr", "address"}, notExist.GetSpecifiedName()) {
			return Usagef("%w", err).SetHint("%s", hint)
		}
	case errors.As(err, &noValue):
		kind, usage := pflag.UnquoteUsage(noValue.GetFlag())
		return Usagef("%w", err).SetHint("--%s %s: %s", noValue.GetFlag().Name, kind, usage)
	case errors.As(err, &value):
		flag, given := value.GetFlag(), value.GetValue()
		err = invalidValue(flag, given, value.Unwrap(), "")
		if _, parseErr := time.ParseDuration(given + "s"); parseErr == nil && flag.Value.Type() == "duration" {
			return Usagef("%w", err).SetHint("did you mean --%s %ss?", flag.Name, given)
		}
	}
	return Usagef("%w", err).SetHint("%s --help lists the options with their defaults", cmd.CommandPath())
}

// addressHint names the flags that set addresses; it returns "" for a command with at most one.
func addressHint(cmd *cobra.Command) string {
	var flags []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.HasSuffix(f.Name, "-addr") {
			flags = append(flags, "--"+f.Name)
		}
	})
	last := len(flags) - 1
	if last < 1 {
		return ""
	}
	return strings.Join(flags[:last], ", ") + " and " + flags[last] + " set the addresses"
}

// Suggest returns the name that is most likely meant, or "" if none is near. A name is near if it
// begins with the two or more letters that were typed, if it differs in one letter, or if it
// differs in two letters that do not include the first. If several names are near, Suggest prefers
// a name whose first letter is right, and then the name nearest in length.
func Suggest(typed string, names []string) string {
	typed = strings.ToLower(typed)
	if len(typed) < 2 {
		return ""
	}
	nearest, least := "", math.MaxInt
	for _, name := range names {
		lower := strings.ToLower(name)
		difference := max(len(lower)-len(typed), len(typed)-len(lower))
		rank, isPrefix := difference, strings.HasPrefix(lower, typed)
		if !isPrefix && (difference > 2 || lower == "") {
			continue // a file may have thousands of keys that are like none
		}
		if lower[0] != typed[0] {
			rank += len(typed)
		}
		if !isPrefix {
			switch edits := editDistance(typed, lower); {
			case edits > 2 || edits == 2 && lower[0] != typed[0]:
				continue
			case edits == 2:
				rank += math.MaxInt / 2 // after all that are nearer
			}
		}
		if rank < least {
			nearest, least = name, rank
		}
	}
	return nearest
}

// editDistance counts the bytes to insert, delete or replace to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // of the part of a that was looked at, to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
