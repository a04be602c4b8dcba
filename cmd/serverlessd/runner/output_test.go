package runner

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	gloom "gloom/clients/go"

	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

func testOutput(size int64) *output {
	return newOutput("secret", &Options{MaxLineBytes: 20, MaxLines: 1000, MaxOutput: size}, zerolog.Nop())
}

// resultText returns a result as a short text.
func resultText(m stepResult) string {
	s := fmt.Sprintf("%d %q %v bad=%d", m.number, m.data, m.lines, m.badLines)
	if m.statusLine != nil {
		s += fmt.Sprintf(" R %d %q", m.statusLine.status, m.statusLine.data)
	}
	if m.fault != nil {
		s += " " + m.fault.code
	}
	return s
}

func TestOutputOfRunsIsSplit(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for in, want := range map[string]string{
		"\nsecret 200 0\n":                          `200 "" [] bad=0`,
		"secret 200 3\n\na\n":                       `200 "\na\n" [] bad=0`,
		"text\nsecret 404 0\n":                      `404 "" [] bad=0`,
		"text secret 1 0\n\nsecret 2 0\n":           `2 "" [] bad=0`,
		"secre 1 0\n secret 1 0\nsecret 2 0\n":      `2 "" [] bad=0`,
		"secret 7 13\nsecret 1 0\n\n\nsecret 2 0\n": `7 "secret 1 0\n\n\n" [] bad=0`,
		long + "\nsecret 200 0\n":                   `200 "" [] bad=0`,
		"J: a|" + long + "\nsecret 200 0\n":         `200 "" [] bad=1`,
		"J: a|b\n#J: c|d|\r\nJ: e\nJ: \nJ:\n J: x|y\nJ: |x\nJ: -a|x\nsecret 200 0\n":            "200 \"\" [{a [98]} {c [100 124 13]}] bad=4",
		"J: 2026-01-02|x\nJ: 2026-01-02T00:00:00Z|x\nJ: 1234567890|x\nJ: 123|x\nsecret 200 0\n": "200 \"\" [{123 [120]}] bad=3",
		"J: a|12345678901234567890\nJ: a|123456789012345678901\nsecret 200 0\n":                 "200 \"\" [{a [49 50 51 52 53 54 55 56 57 48 49 50 51 52 53 54 55 56 57 48]}] bad=1",
		"R: 200\nR: 404 a b\nR: \nR: x\nR: 20\nR: 2000\nR: +20\nsecret 500 0\n":                 `500 "" [] bad=0 R 404 "a b"`,
		"R: 200 " + long + "\nsecret 500 0\n":                                                   `500 "" [] bad=0 R 200 "` + long + `"`,
		"secret 200\n":                                                                          `0 "" [] bad=0 context_died`,
		"secret 200 -1\n":                                                                       `0 "" [] bad=0 context_died`,
		"secret x 1\n":                                                                          `0 "" [] bad=0 context_died`,
		"secret 200 999999999999\n":                                                             `0 "" [] bad=0 output`,
	} {
		// The output is written in one piece, byte by byte, and in two pieces cut at every offset.
		var cuts [][]int
		cuts = append(cuts, nil, []int{1})
		for at := range min(len(in), 300) {
			cuts = append(cuts, []int{at, len(in)})
		}
		for _, cut := range cuts {
			o := testOutput(1 << 20)
			var err error
			for rest, i := []byte(in), 0; len(rest) > 0 && err == nil; i++ {
				n := len(rest)
				if len(cut) > 0 {
					n = min(n, cut[i%len(cut)])
				}
				_, err = o.Write(rest[:n])
				rest = rest[n:]
			}
			select {
			case m := <-o.results:
				if got := resultText(m); got != want {
					t.Errorf("%.80q cut %v: %.200s, want %.200s", in, cut, got, want)
				}
			default:
				t.Errorf("%.80q cut %v: no result, %v", in, cut, err)
			}
		}
	}
}

// TestEndlessOutput: gigabytes without a newline use no memory, and are read to their end.
func TestEndlessOutput(t *testing.T) {
	for _, begin := range []string{"", "R: 200 ", "J: a|", "secret 200 1000000\n"} {
		o := testOutput(1 << 20)
		chunk := bytes.Repeat([]byte("x"), 64<<10)
		_, err := o.Write([]byte(begin))
		n := 0
		for ; err == nil && n < 1<<31; n += len(chunk) {
			_, err = o.Write(chunk)
		}
		if m := <-o.results; m.fault == nil && begin == "" || n > 2<<20 || cap(o.line) > 3<<20 {
			t.Errorf("after %q: %d bytes were taken, %d are held", begin, n, cap(o.line))
		}
	}
	o := testOutput(1 << 20)
	errs := stderr{o}
	for n := 0; ; n++ {
		if _, err := errs.Write(make([]byte, 1<<10)); err != nil {
			break
		} else if n > 2<<10 {
			t.Fatal("standard error has no end")
		}
	}
	if m := <-o.results; m.fault == nil || m.fault.code != codeOutput || len(o.tail) > job.MaxStderr {
		t.Errorf("%s, %d bytes are held", resultText(m), len(o.tail))
	}
}

// TestHostileOutput: random output that has all special texts except the secret never contains an
// end line.
func TestHostileOutput(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		parts := []string{"\n", "\n", "J: ", "#J: ", "R: ", "secre", "Secret 200 0\n", " 200 0\n", "a|b", "\x00", "\xff", "#", "200 ", strings.Repeat("y", 2000)}
		o := testOutput(1 << 30)
		lines := 0
		for range 500 {
			part := parts[r.IntN(len(parts))]
			if _, err := o.Write([]byte(part)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			lines += strings.Count(part, "\n")
		}
		if len(o.results) != 0 || o.current.count() > lines {
			t.Fatalf("seed %d: %d results, %d lines of %d make jobs", seed, len(o.results), o.current.count(), lines)
		}
		if _, err := o.Write([]byte("\nsecret 201 2\nok")); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if m := <-o.results; m.number != 201 || string(m.data) != "ok" {
			t.Fatalf("seed %d: %s", seed, resultText(m))
		}
	}
}

// TestUnexpectedEndLines: an unexpected end line ends the handler process, because it shows that a job knows
// the secret.
func TestUnexpectedEndLines(t *testing.T) {
	o := testOutput(1 << 20)
	if _, err := o.Write([]byte("secret 200 0\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Write([]byte("secret 200 0\n")); err == nil {
		t.Fatal("a second end line was taken")
	}
}

func FuzzOutput(f *testing.F) {
	f.Add([]byte("J: a|b\n\nsecret 200 1\nx"), 3)
	f.Fuzz(func(t *testing.T, in []byte, partSize int) {
		atOnce, parts := testOutput(1<<20), testOutput(1<<20)
		partSize = max(0, min(partSize, len(in)))
		_, err := atOnce.Write(in)
		_, err2 := parts.Write(in[:partSize])
		if err2 == nil {
			_, err2 = parts.Write(in[partSize:])
		}
		if (err == nil) != (err2 == nil) || len(atOnce.results) != len(parts.results) {
			t.Fatalf("whole: %v, cut: %v", err, err2)
		}
		if len(atOnce.results) > 0 {
			if a, b := resultText(<-atOnce.results), resultText(<-parts.results); a != b {
				t.Fatalf("whole: %s\ncut: %s", a, b)
			}
		}
	})
}

func TestGloomBodyIsJSON(t *testing.T) {
	for payload, want := range map[string]string{
		`{"a": 1}`: `{"a": 1}`, `17`: `17`, `"x"`: `"x"`, `x"y`: `"x\"y"`, ``: `""`, `{`: `"{"`, "\xff": "\"\uFFFD\"", "\"\xff\"": "\"\\\"\uFFFD\\\"\"",
		`1 2`: `"1 2"`, "null": "null", " 1": " 1",
	} {
		if got := string(GloomBody([]byte(payload))); got != want {
			t.Errorf("body of %q is %s, want %s", payload, got, want)
		}
	}
	deepArray := strings.Repeat("[", 1100) + strings.Repeat("]", 1100)
	if got := string(GloomBody([]byte(deepArray))); got != `"`+deepArray+`"` {
		t.Errorf("deeper than a broker takes: %.20s…", got)
	}
	failed := gloom.JobError{Code: gloom.ErrJobFailed, Reason: "why"}
	finalError, retryLater, retryNow, lostError := failed, failed, failed, failed
	finalError.Final = true
	retryLater.Later, retryLater.Delay = true, 1500*1e6
	retryNow.Later = true
	lostError.Lost = true
	for _, c := range []struct {
		body string
		err  error
		want string
	}{
		{`{"x":1}`, nil, `200 {"x":1}`},
		{"", &failed, "500 why"},
		{"", &finalError, "400 why"},
		{"", &retryLater, "100 why after=1.5s"},
		{"", &retryNow, "100 why at once"},
		{"", &lostError, "500 worker_lost why"},
		{"", errors.New("away"), "500 away"},
		{"", &gloom.RefusedError{Code: gloom.ErrForbidden, Reason: "not of yours"}, "500 refused gloom: refused: forbidden: not of yours"},
	} {
		if got := text(GloomOutcome([]byte(c.body), c.err)); got != c.want {
			t.Errorf("%s, %v: %q, want %q", c.body, c.err, got, c.want)
		}
	}
}
