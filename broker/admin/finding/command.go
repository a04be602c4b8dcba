package finding

import (
	"regexp"
	"slices"
	"strings"
)

// Command returns a command line of gloom for an advice: the words of the command, a name that is
// quoted for a shell, and flags. It can be pasted whatever the name is.
func Command(words, name string, flags ...string) string {
	before, after := []string{ShellWord(name)}, flags
	if strings.HasPrefix(name, "-") && !strings.Contains(words, " --") { // it would be taken for a flag
		before, after = flags, []string{"--", ShellWord(name)}
	}
	return strings.Join(slices.Concat([]string{"gloom", words}, before, after), " ")
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// ShellWord quotes a word for a shell, unless it means the same without quotes.
func ShellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
