package runner

import (
	"strings"
	"testing"

	"gloom/cmd/serverlessd/job"
)

// TestFailedRunReportsItsStderr: a failed run reports its standard error, and only its own.
func TestFailedRunReportsItsStderr(t *testing.T) {
	scripts := map[string]struct{ body, exception, before string }{
		job.Node:   {"console.error('about', payload); if (payload != 'ok') throw new Error('no ' + payload)", "Error: no x", "throw new Error('no start')"},
		job.Python: {"import sys\nprint('about', payload, file=sys.stderr)\nif payload != 'ok': raise ValueError('no ' + payload)", "ValueError: no x", "raise ValueError('no start')"},
		job.PHP:    {`fwrite(STDERR, "about $payload\n"); if ($payload != 'ok') throw new Exception("no $payload");`, "Exception: no x", `throw new Exception("no start");`},
		job.Shell:  {`echo "about $1" >&2; [ "$1" = ok ] || { echo "no $1" >&2; exit 3; }`, "no x", "echo no start >&2; false"},
	}
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, nil)
		script := scripts[l.lang]
		h := handler(job.Source{Lang: l.lang, Body: script.body})
		for range 20 { // all output before the end is reported, whichever pipe is read first
			b := batch(h, "ok", "x", "y")
			b.Jobs[0].Tries = 1
			outcomes := run(t, r, b)
			if len(outcomes[0].Stderr) != 0 {
				t.Errorf("OK at once, and kept %q", outcomes[0].Stderr)
			}
			got := string(outcomes[1].Stderr)
			if !strings.HasPrefix(got, "about x") || !strings.Contains(got, script.exception) || strings.Contains(got, "about ok") {
				t.Errorf("%q", got)
			}
			if got := string(outcomes[2].Stderr); !strings.HasPrefix(got, "about y") {
				t.Errorf("the next one: %q", got)
			}
		}
		o := runOne(t, r, handler(job.Source{Lang: l.lang, Before: script.before, Body: script.body}), "x")
		if o.Code != codeBeforeFailed || !strings.Contains(string(o.Stderr), "no start") {
			t.Errorf("before: %s, %q", text(o), o.Stderr)
		}
	})
	r := newRunner(t, nil)
	o := runOne(t, r, handler(job.Source{Lang: job.Shell, Body: "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1"}), "x")
	if len(o.Stderr) != job.MaxStderr || !strings.HasSuffix(string(o.Stderr), "line 2999\n") {
		t.Errorf("%d bytes, …%q", len(o.Stderr), o.Stderr[max(0, len(o.Stderr)-30):])
	}
}
