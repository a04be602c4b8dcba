package wire

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	gojson "github.com/goccy/go-json"
)

// Typical payloads.
var (
	smallBody      = `{"n":12345,"text":"the quick brown fox jumps over the lazy dog again and","done":false,"tags":[1,2]}`
	submit100      = `{"action":"submit","id":"job-0123456789","type":"echo","body":` + smallBody + `}`
	submitPriority = `{"action":"submit","id":"job-0123456789","type":"echo","priority":5,"body":{"n":12345,"text":"the quick brown fox jumps over it"}}`
	submitFull     = `{"action":"submit","id":"job-0123456789","type":"echo","priority":5,"delay_ms":1000,"timeout_ms":30000,"retries":5,"backoff_ms":500,"ack":false,"body":[1,2,3]}`
	respond100     = `{"action":"respond","body":` + smallBody + `}`
	respondID      = `{"action":"respond","id":"job-0123456789","body":` + smallBody + `}`
	result100      = `{"id":"job-0123456789","body":` + smallBody + `}`
	longString     = `{"action":"submit","id":"j","body":"` + strings.Repeat("all work and no play makes a dull string of text. ", 65536/50) + `"}`
	longNested     = `{"action":"submit","id":"j","body":{"n":1,"text":"caf\u00e9 ` + strings.Repeat("all work and no play makes a dull string of text. ", 65536/50) + `"}}`
	longEscapes    = `{"action":"submit","id":"j","body":"` + strings.Repeat(`a line of text, then \"quotes\" and one more line\n`, 65536/50) + `"}`
	longWide       = `{"action":"submit","id":"j","body":"` + strings.Repeat("三个字 and ascii ", 65536/20) + `"}`
	longCJK        = `{"action":"submit","id":"j","body":"` + strings.Repeat("漢字仮名交じり文を", 65536/27) + `"}`
	body16K        = `{"action":"submit","id":"j","body":[` + strings.Repeat(smallBody+",", 16384/len(smallBody)) + `null]}`
	body16KPadded  = `{"action":"submit","id":"j","body":` + indentedBody(16384) + `}`
)

func indentedBody(n int) string {
	out, err := json.MarshalIndent(json.RawMessage(`[`+strings.Repeat(smallBody+",", n/200)+`null]`), "", "  ")
	if err != nil {
		panic(err)
	}
	return string(out)
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		name, payload string
		port          Port
		withID        bool
	}{
		{"submit100", submit100, SubmitPort, false},
		{"submitPriority", submitPriority, SubmitPort, false},
		{"submitOptions", submitFull, SubmitPort, false},
		{"respond100", respond100, WorkerPort, false},
		{"respond100named", respondID, WorkerPort, true},
		{"join", `{"action":"join","type":"echo"}`, WorkerPort, false},
		{"body16KiB", body16K, SubmitPort, false},
		{"body16KiBindented", body16KPadded, SubmitPort, false},
		{"string64KiB", longString, SubmitPort, false},
		{"nested64KiB", longNested, SubmitPort, false},
		{"escapes64KiB", longEscapes, SubmitPort, false},
		{"mixed64KiB", longWide, SubmitPort, false},
		{"cjk64KiB", longCJK, SubmitPort, false},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := Decoder{DefaultType: "default"}
			var r Request
			payload := []byte(c.payload)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(payload, c.port, c.withID, &r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkGoJSON decodes the same submit with a general JSON library, for comparison.
func BenchmarkGoJSON(b *testing.B) {
	payload := []byte(submit100)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		var m struct {
			Action, ID, Type string
			Priority         int64
			Body             gojson.RawMessage
		}
		if err := gojson.Unmarshal(payload, &m); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkClientDecode(b *testing.B) {
	var d ClientDecoder
	var ev Event
	payload := []byte(result100)
	b.SetBytes(int64(len(payload)))
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Decode(payload, &ev); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	id, typ, body := []byte("job-0123456789"), []byte("echo"), []byte(smallBody)
	big := []byte(longString)
	buf := make([]byte, 0, 128<<10)
	for _, c := range []struct {
		name   string
		append func()
	}{
		{"job100", func() { buf = AppendJob(buf[:0], id, typ, nil, body) }},
		{"result100", func() { buf = AppendResult(buf[:0], id, body) }},
		{"okID", func() { buf = AppendOKID(buf[:0], id) }},
		{"ok", func() { buf = AppendOK(buf[:0]) }},
		{"error", func() { buf = AppendError(buf[:0], IDExists, "a job with this id is waiting or running", id) }},
		{"submit100", func() { buf = AppendSubmit(buf[:0], &Request{ID: id, Type: typ, Body: body}) }},
		{"job64KiB", func() { buf = AppendJob(buf[:0], id, typ, nil, big) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.append()
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}

func BenchmarkSplitFrame(b *testing.B) {
	frame := AppendResult(nil, []byte("j"), []byte(fmt.Sprint(1)))
	for b.Loop() {
		if _, n, err := SplitFrame(frame, 1<<20); n == 0 || err != nil {
			b.Fatal(n, err)
		}
	}
}
