package web

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// parseBody parses a body for the client acme and the type t, with at most five lines of at most ten
// bytes.
func parseBody(body string) (lines []string, err error) {
	p := parser{client: "acme", jobtype: "acme-t", maxLine: 10, maxLines: 5, checkType: func(string) error { return nil }}
	err = p.parse([]byte(body))
	for _, b := range p.batches {
		for _, line := range b.Lines {
			lines = append(lines, b.Jobtype+" "+string(line))
		}
	}
	if err == nil && p.count != len(lines) {
		err = fmt.Errorf("count %d of %d lines", p.count, len(lines))
	}
	return lines, err
}

func TestBodyIsSplitIntoLines(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       []string
	}{
		{"nothing", "", nil},
		{"newlines alone", "\n\n\n", nil},
		{"one line", "a\n", []string{"acme-t a"}},
		{"the last without a newline", "a\nb", []string{"acme-t a", "acme-t b"}},
		{"empty lines", "\na\n\nb\n\n", []string{"acme-t a", "acme-t b"}},
		{"bytes of any kind", "a\x00\r\n|\xff|\n", []string{"acme-t a\x00\r", "acme-t |\xff|"}},
		{"a comment is a payload", "#a\n# :b\n", []string{"acme-t #a", "acme-t # :b"}},
		{"the longest line", "0123456789\n", []string{"acme-t 0123456789"}},
		{"a batch", "#:Batch bytes=4,jobtype=u\na\nb\n#:EndBatch\n", []string{"acme-u a", "acme-u b"}},
		{"a batch of its own type", "#:Batch bytes=2\na\n#:EndBatch", []string{"acme-t a"}},
		{"a full jobtype", "#:Batch bytes=2,jobtype=acme-u-v,date=whenever\na\n#:EndBatch\n", []string{"acme-u-v a"}},
		{"no directives inside", "#:Batch bytes=12\n#:EndBatch\n\n#:EndBatch\n", []string{"acme-t #:EndBatch"}},
		{"an empty batch", "#:Batch bytes=0\n#:EndBatch\n", nil},
		{"lines and batches", "a\n#:Batch bytes=2,jobtype=u\nb\n#:EndBatch\nc\n", []string{"acme-t a", "acme-u b", "acme-t c"}},
		{"as many lines as are allowed", "a\n\nb\nc\n\nd\ne\n", []string{"acme-t a", "acme-t b", "acme-t c", "acme-t d", "acme-t e"}},
		{"carriage returns", "#:Batch bytes=3\r\na\r\n#:EndBatch\r\n", []string{"acme-t a\r"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parseBody(c.body)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestBadBody(t *testing.T) {
	for _, c := range []struct{ name, body, code, reason string }{
		{"unknown directive", "a\n#:Foo\n", "invalid_batch", "line 2:"},
		{"end without a batch", "#:EndBatch\n", "invalid_batch", "line 1:"},
		{"no size", "#:Batch jobtype=u\n#:EndBatch\n", "invalid_batch", "needs bytes=N"},
		{"size is not a number", "#:Batch bytes=x\n#:EndBatch\n", "invalid_batch", "bytes=x"},
		{"negative size", "#:Batch bytes=-1\n#:EndBatch\n", "invalid_batch", "bytes=-1"},
		{"too small a size", "#:Batch bytes=2\na\nb\n#:EndBatch\n", "invalid_batch", "must follow"},
		{"a size inside a line", "#:Batch bytes=1\na\n#:EndBatch\n", "invalid_batch", "newline"},
		{"too large a size", "#:Batch bytes=40\na\nb\n#:EndBatch\n", "invalid_batch", "only 15 follow"},
		{"no end", "#:Batch bytes=2\na\n", "invalid_batch", "EndBatch"},
		{"unknown field", "#:Batch bytes=2,typ=u\na\n#:EndBatch\n", "invalid_batch", "\"typ\""},
		{"a field twice", "#:Batch bytes=2,bytes=4\na\nb\n#:EndBatch\n", "invalid_batch", "\"bytes\""},
		{"malformed type", "#:Batch bytes=2,jobtype=u v\na\n#:EndBatch\n", "invalid_type", "\"u v\""},
		{"another client", "#:Batch bytes=2,jobtype=x-y\na\n#:EndBatch\n", "forbidden", "write jobtype=acme-x-y"},
		{"a line too long", "a\n0123456789x\n", "too_large", "line 2 has 11 bytes; at most 10 are allowed"},
		{"a line too many", "a\nb\n\n#:Batch bytes=4\nc\nd\n#:EndBatch\ne\nf\n", "too_large", "more than 5 lines (--max-lines); line 9 "},
		{"a line too long in a batch", "#:Batch bytes=12\n0123456789x\n#:EndBatch\n", "too_large", "line 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseBody(c.body)
			f := errorOf(err)
			if err == nil || f.Code != c.code || !strings.Contains(f.Reason, c.reason) {
				t.Errorf("got %v, want %s with %q", err, c.code, c.reason)
			}
		})
	}
}

// FuzzBody: a payload that is accepted has no newline and is not empty.
func FuzzBody(f *testing.F) {
	f.Add("a\n#:Batch bytes=4,jobtype=u\na\nb\n#:EndBatch\nb")
	f.Add("#:Batch bytes=0\n#:EndBatch")
	f.Fuzz(func(t *testing.T, body string) {
		lines, err := parseBody(body)
		for _, line := range lines {
			if err == nil && (strings.Contains(line, "\n") || strings.HasSuffix(line, " ") && !strings.Contains(body, " ")) {
				t.Errorf("%q gave %q", body, line)
			}
		}
	})
}

// TestCutBody: a body that is cut short is refused. The refusal names the announced length, if
// there was one.
func TestCutBody(t *testing.T) {
	for length, want := range map[int64]string{9: "its announced length, 9 bytes", -1: "its last chunk"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", iotest.ErrReader(io.ErrUnexpectedEOF))
		r.ContentLength = length
		s := &Web{opt: Options{MaxBody: 100}}
		_, _, err := s.read(&request{Request: r, w: httptest.NewRecorder()})
		if f := errorOf(err); f == nil || f.Code != "invalid_value" || !strings.Contains(f.Reason, want) {
			t.Errorf("%d bytes announced: %v, want %q", length, err, want)
		}
	}
}
