package finding_test

import (
	"testing"

	"gloom/broker/admin/finding"
)

// TestCommandCanBePasted: a name stays one word of the command line, and never becomes a flag.
func TestCommandCanBePasted(t *testing.T) {
	for _, c := range []struct {
		words, name string
		flags       []string
		want        string
	}{
		{"resume", "mail", nil, "gloom resume mail"},
		{"forget", "small talk", []string{"--jobs"}, "gloom forget 'small talk' --jobs"},
		{"forget", "-x", []string{"--jobs"}, "gloom forget --jobs -- -x"},
		{"limit --group", "-x*", nil, "gloom limit --group '-x*'"},
		{"dead ls", "it's", nil, `gloom dead ls 'it'\''s'`},
		{"pause", "", nil, "gloom pause ''"},
	} {
		if got := finding.Command(c.words, c.name, c.flags...); got != c.want {
			t.Errorf("%q of %q: %s, want %s", c.words, c.name, got, c.want)
		}
	}
}
