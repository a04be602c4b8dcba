package bridge

import (
	"slices"
	"testing"
)

func TestCommandIsSplitOnSpacesOnly(t *testing.T) {
	for command, want := range map[string][]string{
		"php /x.php {id}":          {"php", "/x.php", "37"},
		"  a   b  ":                {"a", "b"},
		`a "b c" 'd'`:              {"a", `"b`, `c"`, "'d'"},
		"a{id}b{id} {ID} $HOME\t*": {"a37b37", "{ID}", "$HOME\t*"},
		"":                         nil,
	} {
		if got := commandArgs(command, 37); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
