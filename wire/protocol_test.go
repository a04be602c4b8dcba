package wire_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"gloom/wire"
)

// example is one line of a fenced dialogue in PROTOCOL.md.
type example struct {
	line      int
	toBroker  bool
	port      wire.Port
	namesJobs bool
	payload   string
	answer    string // the broker's line that follows a request
}

// protocolExamples reads the blocks fenced as "submitter", "worker" and
// "worker named", in which every line begins with an arrow.
func protocolExamples(t *testing.T) (examples []example) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	var block *example
	fenced := false
	for i, line := range strings.Split(string(text), "\n") {
		if info, fence := strings.CutPrefix(line, "```"); fence {
			block = nil
			if fenced = !fenced; fenced {
				switch info {
				case "submitter":
					block = &example{port: wire.SubmitPort}
				case "worker", "worker named":
					block = &example{port: wire.WorkerPort, namesJobs: info == "worker named"}
				case "":
				default:
					t.Errorf("line %d: a block of %q", i+1, info)
				}
			}
			continue
		}
		if block == nil {
			if strings.HasPrefix(line, "→") || strings.HasPrefix(line, "←") {
				t.Errorf("line %d: an example in a block without a role", i+1)
			}
			continue
		}
		ex := *block
		ex.line = i + 1
		var ok bool
		if ex.payload, ok = strings.CutPrefix(line, "→ "); ok {
			ex.toBroker = true
		} else if ex.payload, ok = strings.CutPrefix(line, "← "); !ok {
			t.Errorf("line %d: no arrow: %s", i+1, line)
		} else if n := len(examples); n > 0 && examples[n-1].line == i && examples[n-1].toBroker {
			examples[n-1].answer = ex.payload
		}
		examples = append(examples, ex)
	}
	return examples
}

func TestProtocolExamplesAreValid(t *testing.T) {
	golden := map[string]bool{} // direction, port and payload
	for _, c := range allGolden(t) {
		for _, port := range c.ports() {
			golden[c.Direction+port.String()+string(c.payload(t))] = true
		}
	}
	examples := protocolExamples(t)
	if len(examples) < 30 {
		t.Fatalf("only %d examples in PROTOCOL.md", len(examples))
	}
	for _, ex := range examples {
		direction := "reply"
		if ex.toBroker {
			direction = "request"
		}
		if !golden[direction+ex.port.String()+ex.payload] {
			t.Errorf("line %d: no golden %s on the %v: %s", ex.line, direction, ex.port, ex.payload)
		}
		if ex.toBroker {
			checkExampleRequest(t, ex)
		} else {
			checkExampleReply(t, ex)
		}
	}
}

// checkExampleRequest checks that a request is accepted, or refused as the next line
// shows.
func checkExampleRequest(t *testing.T, ex example) {
	d := wire.Decoder{DefaultType: "default"}
	var r wire.Request
	err := d.Decode([]byte(ex.payload), ex.port, ex.namesJobs, &r)
	if err == nil {
		checkRequestRoundTrip(t, &r, ex.port, ex.namesJobs)
		return
	}
	reply := string(wire.AppendError(nil, err.Code, err.Reason, err.ID)[wire.HeaderLen:])
	if reply != ex.answer {
		t.Errorf("line %d: %s\n is answered %s\n not %s", ex.line, ex.payload, reply, ex.answer)
	}
}

func checkExampleReply(t *testing.T, ex example) {
	var d wire.ClientDecoder
	var ev wire.Event
	if err := d.Decode([]byte(ex.payload), &ev); err != nil {
		t.Errorf("line %d: %v", ex.line, err)
		return
	}
	if got := string(encodeEvent(t, &ev)[wire.HeaderLen:]); got != ex.payload {
		t.Errorf("line %d: the broker would write %s", ex.line, got)
	}
}

// TestProtocolErrorTableMatchesCodes: the table of errors must name each code once, in the order of the
// codes, with its reach.
func TestProtocolErrorTableMatchesCodes(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Errors\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|.*\\| ([a-z ]+) \\|$").FindAllStringSubmatch(section, -1)
	if len(rows) != len(wire.Codes()) {
		t.Fatalf("%d rows for %d codes", len(rows), len(wire.Codes()))
	}
	effectNames := map[wire.ConnEffect]string{wire.StaysOpen: "stays", wire.MayClose: "may close", wire.Closes: "closes"}
	for i, code := range wire.Codes() {
		if rows[i][1] != code.String() || rows[i][2] != effectNames[code.ConnEffect()] {
			t.Errorf("row %d is %v, want %v, %s", i+1, rows[i][1:], code, effectNames[code.ConnEffect()])
		}
	}
}

// Each link in the table of contents must have a target.
func TestProtocolLinksHaveTargets(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(string(text), -1) {
		anchors[strings.ReplaceAll(strings.ToLower(h[1]), " ", "-")] = true
	}
	links := regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(string(text), -1)
	if len(links) < 10 {
		t.Fatalf("only %d links", len(links))
	}
	for _, l := range links {
		if !anchors[l[1]] {
			t.Errorf("no heading for #%s", l[1])
		}
	}
}

// The document and the code must give the same limits.
func TestProtocolLimitsMatchCode(t *testing.T) {
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range []string{
		fmt.Sprintf("| id, type, group | 1 … %d bytes", wire.MaxNameBytes),
		fmt.Sprintf("| nesting | %d,", wire.MaxDepth),
		fmt.Sprintf("| durations | %d ms", wire.MaxDurationMS),
		fmt.Sprintf("| `backoff_ms`, `keep_ms` | %d ms", wire.MaxBackoffMS),
		fmt.Sprintf("| `retries` | %d |", wire.MaxRetries),
		fmt.Sprintf("| `heartbeat_ms` | %d … %d,", wire.MinHeartbeatMS, wire.MaxHeartbeatMS),
	} {
		if !strings.Contains(section, row) {
			t.Errorf("the limits do not say %q", row)
		}
	}
}
