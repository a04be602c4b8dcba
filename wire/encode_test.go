package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"gloom/wire"
)

func TestHeadsMatchFrames(t *testing.T) {
	id, typ := []byte("é\\\""), []byte("echo")
	for _, size := range []int{1, 100, 255, 256, 65535, 70000} {
		body := []byte(`"` + strings.Repeat("x", size) + `"`)
		for name, pair := range map[string][2][]byte{
			"job":      {wire.AppendJob(nil, id, typ, nil, body), wire.AppendJobHead(nil, id, typ, nil, len(body))},
			"headers":  {wire.AppendJob(nil, id, typ, []byte("{}"), body), wire.AppendJobHead(nil, id, typ, []byte("{}"), len(body))},
			"result":   {wire.AppendResult(nil, id, body), wire.AppendResultHead(nil, id, len(body))},
			"progress": {wire.AppendProgress(nil, id, body), wire.AppendProgressHead(nil, id, len(body))},
		} {
			complete, parts := pair[0], append(append(pair[1], body...), wire.BodyEnd)
			if !bytes.Equal(complete, parts) {
				t.Errorf("%s of %d bytes: %.60q and %.60q", name, size, complete, parts)
			}
			payload, used, err := wire.SplitFrame(complete, 1<<20)
			if err != nil || used != len(complete) || !json.Valid(payload) {
				t.Errorf("%s of %d bytes splits into %d of %d, %v", name, size, used, len(complete), err)
			}
		}
	}
}

// Frames are appended to the given buffer, without a copy if it has room.
func TestEncodersAppend(t *testing.T) {
	id, typ, body := []byte("i"), []byte("t"), []byte("[1]")
	r := wire.Request{ID: id, Type: typ, Body: body, Priority: -3, Retries: -1, Detach: true}
	encoders := map[string]func([]byte) []byte{
		"ok":       wire.AppendOK,
		"okID":     func(b []byte) []byte { return wire.AppendOKID(b, id) },
		"job":      func(b []byte) []byte { return wire.AppendJob(b, id, typ, nil, body) },
		"result":   func(b []byte) []byte { return wire.AppendResult(b, id, body) },
		"progress": func(b []byte) []byte { return wire.AppendProgress(b, id, body) },
		"error":    func(b []byte) []byte { return wire.AppendError(b, wire.UnknownID, "why", id) },
		"cancel":   func(b []byte) []byte { return wire.AppendCancel(b, id) },
		"ping":     wire.AppendPing,
		"helloOK":  func(b []byte) []byte { return wire.AppendHelloOK(b, "gloomd/1", 1, 2, 3, 4, 5) },
		"submit":   func(b []byte) []byte { return wire.AppendSubmit(b, &r) },
		"join": func(b []byte) []byte {
			return wire.AppendJoin(b, &wire.Request{Type: typ, Prefetch: 4, WantCancels: true})
		},
		"respond": func(b []byte) []byte { return wire.AppendRespond(b, id, body) },
		"fail":    func(b []byte) []byte { return wire.AppendFail(b, id, []byte("no"), false, 0) },
		"news":    func(b []byte) []byte { return wire.AppendWorkerProgress(b, id, body) },
		"leave":   wire.AppendLeave,
		"cancel2": func(b []byte) []byte { return wire.AppendCancel(b, id) },
		"hello":   func(b []byte) []byte { return wire.AppendHello(b, "t", "c", 100) },
		"pong":    wire.AppendPong,
		"joinAll": func(b []byte) []byte {
			return wire.AppendJoin(b, &wire.Request{Types: [][]byte{typ, id}, Except: [][]byte{id}})
		},
		"attached": func(b []byte) []byte { return wire.AppendAttached(b, id, "queued") },
		"attach":   func(b []byte) []byte { return wire.AppendAttach(b, id, true) },
		"change": func(b []byte) []byte {
			return wire.AppendChange(b, &wire.Request{ID: id, HasGroups: true, AfterMS: -1})
		},
		"release": func(b []byte) []byte { return wire.AppendRelease(b, id, 0) },
		"ping2":   wire.AppendPing,
	}
	for name, encode := range encoders {
		firstFrame := encode(nil)
		if payload, used, err := wire.SplitFrame(firstFrame, 1000); err != nil || used != len(firstFrame) || !json.Valid(payload) {
			t.Errorf("%s: %q splits into %q, %v", name, firstFrame, payload, err)
		}
		bigBuffer := make([]byte, 3, 512)
		copy(bigBuffer, "abc")
		appended := encode(bigBuffer)
		if string(appended) != "abc"+string(firstFrame) {
			t.Errorf("%s behind others: %q", name, appended)
		}
		if &appended[0] != &bigBuffer[0] {
			t.Errorf("%s left a buffer that had room", name)
		}
		noRoom := encode([]byte("abc")[:3:3])
		if string(noRoom) != "abc"+string(firstFrame) {
			t.Errorf("%s behind others, growing: %q", name, noRoom)
		}
	}
}

func TestErrorWithoutReasonHasCodeName(t *testing.T) {
	got := wire.AppendError(nil, wire.Expired, "", nil)
	if string(got[wire.HeaderLen:]) != `{"error":"expired","reason":"expired"}` {
		t.Errorf("%q", got)
	}
	got = wire.AppendError(nil, wire.JobFailed, "bad \xff byte", []byte("i"))
	if string(got[wire.HeaderLen:]) != `{"error":"job_failed","reason":"bad `+"\uFFFD"+` byte","id":"i"}` {
		t.Errorf("%q", got)
	}
	got = wire.AppendError(nil, wire.JobFailed, "said \"no\"\n", []byte("i"))
	if string(got[wire.HeaderLen:]) != `{"error":"job_failed","reason":"said \"no\"\n","id":"i"}` {
		t.Errorf("%q", got)
	}
}

// TestAbsentOptionsAreNotSent: options that are absent are not sent.
func TestAbsentOptionsAreNotSent(t *testing.T) {
	var r wire.Request
	wire.ResetRequest(&r)
	r.ID, r.Body = []byte("i"), []byte("1")
	if got := string(wire.AppendSubmit(nil, &r)[wire.HeaderLen:]); got != `{"action":"submit","id":"i","body":1}` {
		t.Errorf("%s", got)
	}
	r.Type, r.Retries = []byte("t"), 0
	if got := string(wire.AppendSubmit(nil, &r)[wire.HeaderLen:]); got != `{"action":"submit","id":"i","type":"t","retries":0,"body":1}` {
		t.Errorf("%s", got)
	}
}
