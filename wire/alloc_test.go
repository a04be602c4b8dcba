package wire_test

import (
	"testing"

	"gloom/wire"
)

// TestHotPathDoesNotAllocate: the broker decodes and encodes several frames for each job, and
// none of that may allocate.
func TestHotPathDoesNotAllocate(t *testing.T) {
	d := wire.Decoder{DefaultType: "default"}
	var r wire.Request
	request := func(payload string, port wire.Port, withID bool) func() {
		p := []byte(payload)
		return func() {
			if err := d.Decode(p, port, withID, &r); err != nil {
				panic(err)
			}
		}
	}
	var c wire.ClientDecoder
	var ev wire.Event
	reply := func(payload string) func() {
		p := []byte(payload)
		return func() {
			if err := c.Decode(p, &ev); err != nil {
				panic(err)
			}
		}
	}
	buf := make([]byte, 0, 4096)
	id, typ, body := []byte("a1"), []byte("echo"), []byte(`{"text":"hello"}`)
	for name, f := range map[string]func(){
		"submit":              request(submitLine, wire.SubmitPort, false),
		"submit, default":     request(`{"action":"submit","id":"a1","body":"é"}`, wire.SubmitPort, false),
		"submit, escapes":     request(`{"\u0061ction":"submit","id":"\u00e9\n","type":"\ud83d\ude00","body":1}`, wire.SubmitPort, false),
		"submit, all options": request(`{"action":"submit","id":"o","body":1,"priority":-1,"delay_ms":1,"timeout_ms":2,"retries":5,"backoff_ms":2,"expires_ms":6,"detach":true,"ack":false,"progress":true}`, wire.SubmitPort, false),
		"cancel":              request(`{"action":"cancel","id":"a1"}`, wire.SubmitPort, false),
		"join":                request(`{"action":"join","type":"echo","prefetch":5,"cancel":true}`, wire.WorkerPort, false),
		"respond":             request(`{"action":"respond","body":{"text":"olleh"}}`, wire.WorkerPort, false),
		"respond, named":      request(`{"action":"respond","id":"a1","body":{"text":"olleh"}}`, wire.WorkerPort, true),
		"fail":                request(`{"action":"fail","reason":"a\nb","retry":false,"delay_ms":0}`, wire.WorkerPort, false),
		"progress":            request(`{"action":"progress","body":1}`, wire.WorkerPort, false),
		"pong":                request(`{"action":"pong"}`, wire.WorkerPort, false),
		"get ok":              reply(`{"ok":true,"id":"a1"}`),
		"get job":             reply(`{"action":"job","id":"a1","type":"echo","body":[1]}`),
		"get result":          reply(`{"id":"\u00e9","body":[1]}`),
		"get progress":        reply(`{"id":"a1","progress":[1]}`),
		"append ok":           func() { buf = wire.AppendOK(buf[:0]) },
		"append ok with id":   func() { buf = wire.AppendOKID(buf[:0], id) },
		"append job":          func() { buf = wire.AppendJob(buf[:0], id, typ, nil, body) },
		"append result":       func() { buf = wire.AppendResult(buf[:0], id, body) },
		"append progress":     func() { buf = wire.AppendProgress(buf[:0], id, body) },
		"append error":        func() { buf = wire.AppendError(buf[:0], wire.IDExists, "a \"reason\"", id) },
		"append respond":      func() { buf = wire.AppendRespond(buf[:0], id, body) },
		"append submit":       func() { buf = wire.AppendSubmit(buf[:0], &wire.Request{ID: id, Type: typ, Body: body}) },
		"split": func() {
			if _, n, err := wire.SplitFrame(buf, 4096); n == 0 || err != nil {
				panic(err)
			}
		},
	} {
		buf = wire.AppendOK(buf[:0])
		f() // the scratch buffer grows once
		if n := testing.AllocsPerRun(200, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
