package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/table"
)

func TestTextIsCleanedAndCut(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Truncate("abcdef", 4), "abc…"},
		{Truncate("abcdef", 6), "abcdef"},
		{Truncate("日本語", 4), "日…"},
		{Truncate("abc", 0), "abc"},
		{Clean("a\x1b[2Jb\n"), `a\x1b[2Jb\n`},
		{Clean("naïve"), "naïve"},
		{Clean("  "), `"  "`},
		{Clean("a b"), "a b"},
		{QuoteName("a b"), `"a b"`},
		{QuoteName("a\nb"), `a\nb`},
		{QuoteName(""), `""`},
		{CleanText("a\t\n  \n"), "a\t\n  \n"},
		{CleanText("a\tb\n\x07c"), "a\tb\n\\ac"},
		{Plural(0, "job"), "0 jobs"},
		{Plural(1, "job"), "1 job"},
		{Plural(1200, "job"), "1,200 jobs"},
		{FormatBytes(16 << 20), "16MiB"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestTableIsAligned(t *testing.T) {
	var out bytes.Buffer
	err := PrintTable(&out, func(maxWidth int) table.Writer {
		w := NewTable(Column{Name: "TYPE", AlignLeft: true, MaxWidth: maxWidth}, Column{Name: "N"}, Column{Name: "SECRET", IsHidden: true})
		w.AppendRow(table.Row{"mail", 7, "x"})
		w.AppendRow(table.Row{"a longer one", 123, "x"})
		return w
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{"TYPE            N", "mail            7", "a longer one  123", ""}, "\n")
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}
