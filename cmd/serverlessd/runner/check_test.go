package runner

import (
	"testing"

	"gloom/cmd/serverlessd/job"
)

func TestCheck(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.Languages = []string{job.HTTP, job.Gloom, job.Shell} })
	for _, c := range []struct{ lang, body, want string }{
		{"", "x", "missing_field lang"},
		{"cobol", "x", "invalid_lang lang"},
		{job.Node, "x", "invalid_lang lang"},
		{job.Shell, "", "missing_field body"},
		{job.Shell, "if", ""},
		{job.Gloom, "a note", ""},
		{job.HTTP, "http://a/b", ""},
		{job.HTTP, "https://user:word@a:1/b?c", ""},
		{job.HTTP, "ftp://a/b", "invalid_value body"},
		{job.HTTP, "http:///b", "invalid_value body"},
		{job.HTTP, "http://a:b/", "invalid_value body"},
		{job.HTTP, "a/b", "invalid_value body"},
		{job.HTTP, "http://a\x00/", "invalid_value body"},
	} {
		err := r.Check(&job.Source{Lang: c.lang, Body: c.body})
		got := ""
		if e, ok := err.(*CheckError); ok {
			got = e.Code + " " + e.Field
		}
		if got != c.want || (err != nil) != (got != "") {
			t.Errorf("%s %q: %v, want %q", c.lang, c.body, err, c.want)
		}
	}
}
