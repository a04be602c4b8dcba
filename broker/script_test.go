package broker_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/wording"
)

var update = flag.Bool("update", false, "rewrite the expected effects in testdata/*.txt; review the difference")

// TestScripts plays testdata/*.txt. A script has a command per line and, indented below the
// command, the expected effects. Lines that begin with # are comments. Time is virtual.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, commands := runScript(t, string(text))
			if commands == 0 {
				t.Fatalf("%s has no commands", file)
			}
			if got == string(text) {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s differs (go test ./broker -run TestScripts -update rewrites it):\n%s", file, difference(string(text), got))
		})
	}
}

const indent = "    "

// runScript runs a script. It returns the script with the actual effects and the number of commands.
func runScript(t *testing.T, text string) (string, int) {
	var out strings.Builder
	s := &script{names: map[broker.Peer]string{}, peers: map[string]broker.Peer{}}
	commands := 0
	for number, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, indent) {
			continue // skip the expected effects
		}
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		commands++
		s.out = s.out[:0]
		if err := s.runLine(line); err != nil {
			t.Fatalf("line %d, %q: %v", number+1, line, err)
		}
		for _, l := range s.out {
			out.WriteString(indent + l + "\n")
		}
	}
	return out.String(), commands
}

// difference returns the first lines that differ, with some lines around them.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	at := 0
	for at < len(w) && at < len(g) && w[at] == g[at] {
		at++
	}
	part := func(lines []string) string {
		return strings.Join(lines[max(0, min(at, len(lines))-3):min(len(lines), at+5)], "\n")
	}
	return fmt.Sprintf("line %d\n--- expected\n%s\n--- got\n%s", at+1, part(w), part(g))
}

// script is the state of a script that is being played.
type script struct {
	core  *broker.Broker
	now   time.Duration
	since time.Duration // when the command began; effects that come later are shown with the time passed
	names map[broker.Peer]string
	peers map[string]broker.Peer
	out   []string
}

func (s *script) noteEffects(fx []broker.Effect) {
	for i := range fx {
		s.printf("%s", s.formatEffect(&fx[i]))
	}
}

func (s *script) printf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if elapsed := s.now - s.since; elapsed > 0 {
		line = fmt.Sprintf("+%v %s", elapsed.Round(time.Millisecond), line)
	}
	s.out = append(s.out, line)
}

var codes = map[broker.Code]string{
	broker.IDExists: "id_exists", broker.UnknownID: "unknown_id", broker.NotProcessing: "invalid_state",
	broker.Overloaded: "overloaded", broker.Draining: "draining", broker.JobFailed: "job_failed", broker.JobLost: "job_failed (lost)", broker.JobNoRetry: "job_failed (final)", broker.JobRetryLater: "job_failed (later)",
	broker.Expired: "expired", broker.Cancelled: "cancelled",
}

func (s *script) formatEffect(e *broker.Effect) string {
	var l bytes.Buffer
	l.WriteString(s.names[e.Peer] + " <- ")
	switch e.Op {
	case broker.OpOK:
		l.WriteString("ok")
	case broker.OpJob:
		fmt.Fprintf(&l, "job %s %s %s", e.ID, e.Type, e.Body)
		if e.Headers != nil {
			fmt.Fprintf(&l, " headers %s", e.Headers)
		}
	case broker.OpResult:
		fmt.Fprintf(&l, "result %s %s", e.ID, e.Body)
	case broker.OpProgress:
		fmt.Fprintf(&l, "progress %s %s", e.ID, e.Body)
	case broker.OpCancel:
		fmt.Fprintf(&l, "cancel %s", e.ID)
	case broker.OpRefuse, broker.OpEnd:
		fmt.Fprintf(&l, "error %s", codes[e.Code])
		if e.ID != nil {
			fmt.Fprintf(&l, " %s", e.ID)
		}
		fmt.Fprintf(&l, ": %s", wording.Reason(e.Reason))
	default:
		fmt.Fprintf(&l, "op %d", e.Op)
	}
	if e.Op == broker.OpOK && e.ID != nil {
		fmt.Fprintf(&l, " %s", e.ID)
	}
	return l.String()
}
