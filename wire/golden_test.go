package wire_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"gloom/wire"
)

// goldenCase is one frame of testdata, as its README.md describes it.
type goldenCase struct {
	Name        string
	Port        string
	Direction   string
	Named       bool
	DefaultType *string `json:"default_type"`
	Text        *string
	Hex         string
	Exact       bool
	Meaning     map[string]any
	Error       *goldenError
}

type goldenError struct {
	Code string
	ID   *string
	Says []string
}

type goldenStream struct {
	Name     string
	MaxFrame int `json:"max_frame"`
	Hex      string
	Payloads []string
	Rest     int
	Error    *goldenError
}

func loadGolden[T any](t testing.TB, file string) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var set struct {
		About string
		Cases []T
	}
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	if err := dec.Decode(&set); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if len(set.Cases) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return set.Cases
}

var frameFiles = []string{"submitter.json", "worker.json", "both.json", "replies.json"}

func allGolden(t testing.TB) []goldenCase {
	var cases []goldenCase
	for _, file := range frameFiles {
		cases = append(cases, loadGolden[goldenCase](t, file)...)
	}
	return cases
}

func (c goldenCase) payload(t testing.TB) []byte {
	t.Helper()
	if c.Text != nil {
		return []byte(*c.Text)
	}
	raw, err := hex.DecodeString(c.Hex)
	if err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	return raw
}

func (c goldenCase) ports() []wire.Port {
	switch c.Port {
	case "submitter":
		return []wire.Port{wire.SubmitPort}
	case "worker":
		return []wire.Port{wire.WorkerPort}
	case "both":
		return []wire.Port{wire.SubmitPort, wire.WorkerPort}
	}
	return nil
}

func (c goldenCase) decoder() *wire.Decoder {
	d := &wire.Decoder{DefaultType: "default"}
	if c.DefaultType != nil {
		d.DefaultType = *c.DefaultType
	}
	return d
}

// requestMeaning returns the meaning of a request as the golden files write it: strings by
// value, and only what differs from the default.
func requestMeaning(r *wire.Request) map[string]any {
	m := map[string]any{"verb": r.Verb.String()}
	put := func(key string, value any, present bool) {
		if present {
			m[key] = value
		}
	}
	put("id", wire.Value(r.ID), r.ID != nil)
	put("type", wire.Value(r.Type), r.Type != nil)
	put("body", string(r.Body), r.Body != nil)
	put("priority", r.Priority, r.Priority != 0 || r.HasPriority)
	put("delay_ms", r.DelayMS, r.DelayMS != 0)
	put("timeout_ms", r.TimeoutMS, r.TimeoutMS != 0)
	put("retries", r.Retries, r.Retries != -1)
	put("backoff_ms", r.BackoffMS, r.BackoffMS != 0)
	put("expires_ms", r.ExpiresMS, r.ExpiresMS != 0)
	put("detach", true, r.Detach)
	put("ack", false, r.NoAck)
	put("progress", true, r.WantProgress)
	put("prefetch", r.Prefetch, r.Prefetch != 0)
	put("cancel", true, r.WantCancels)
	put("reason", wire.Value(r.Reason), r.Reason != nil)
	put("retry", false, r.NoRetry)
	put("delay_ms", r.AfterMS, r.AfterMS != -1)
	put("age_ms", r.AgeMS, r.AgeMS != 0)
	put("keep_ms", r.KeepMS, r.KeepMS != 0)
	put("headers", string(r.Headers), r.Headers != nil)
	put("headers", true, r.WantHeaders)
	put("types", valuesOf(r.Types), r.Types != nil)
	put("except", valuesOf(r.Except), r.Except != nil)
	put("groups", valuesOf(r.Groups), r.Groups != nil || r.HasGroups)
	put("token", string(r.Token), len(r.Token) > 0)
	put("client", string(r.Client), len(r.Client) > 0)
	put("heartbeat_ms", r.HeartbeatMS, r.HeartbeatMS != 0)
	return m
}

func valuesOf(names [][]byte) []string {
	list := []string{}
	for _, n := range names {
		list = append(list, wire.Value(n))
	}
	return list
}

func eventMeaning(ev *wire.Event) map[string]any {
	m := map[string]any{"kind": ev.Kind.String()}
	put := func(key string, value any, present bool) {
		if present {
			m[key] = value
		}
	}
	put("id", wire.Value(ev.ID), ev.ID != nil)
	put("type", wire.Value(ev.Type), ev.Type != nil)
	put("body", string(ev.Body), ev.Body != nil)
	put("code", ev.Code, ev.Code != "")
	put("reason", ev.Reason, ev.Reason != "")
	put("cause", ev.Cause, ev.Cause != "")
	put("delay_ms", ev.DelayMS, ev.DelayMS != 0)
	put("server", ev.Server, ev.Server != "")
	put("max_frame", ev.MaxFrame, ev.MaxFrame != 0)
	put("max_frame_out", ev.MaxFrameOut, ev.MaxFrameOut != 0)
	put("max_id", ev.MaxID, ev.MaxID != 0)
	put("max_prefetch", ev.MaxPrefetch, ev.MaxPrefetch != 0)
	put("max_types", ev.MaxTypes, ev.MaxTypes != 0)
	put("headers", string(ev.Headers), ev.Headers != nil)
	put("state", ev.State, ev.State != "")
	return m
}

// sameMeaning compares two meanings by their JSON, with sorted keys and with all digits of
// numbers.
func sameMeaning(t *testing.T, got, want map[string]any) {
	t.Helper()
	g, err1 := json.Marshal(got)
	w, err2 := json.Marshal(want)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if string(g) != string(w) {
		t.Errorf("meaning\n got %s\nwant %s", g, w)
	}
}

func checkError(t *testing.T, err *wire.Error, want *goldenError) {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want %s", want.Code)
	}
	if err.Code.String() != want.Code {
		t.Errorf("%v, want %s", err, want.Code)
	}
	if (err.ID != nil) != (want.ID != nil) {
		t.Errorf("%v: id %q, want one: %v", err, err.ID, want.ID != nil)
	} else if want.ID != nil && wire.Value(err.ID) != *want.ID {
		t.Errorf("%v: id %q, want %q", err, wire.Value(err.ID), *want.ID)
	}
	checkReason(t, err.Reason)
	for _, word := range want.Says {
		if !strings.Contains(err.Reason, word) {
			t.Errorf("reason %q does not mention %q", err.Reason, word)
		}
	}
}

// checkReason checks the style of a reason. A value from a peer may have capitals, so only the
// case of the first letter is checked.
func checkReason(t *testing.T, reason string) {
	switch {
	case reason == "":
		t.Error("empty reason")
	case !utf8.ValidString(reason):
		t.Errorf("reason %q is not utf-8", reason)
	case reason[0] < 'a' || reason[0] > 'z':
		t.Errorf("reason %q does not begin in lower case", reason)
	case len(reason) > 300:
		t.Errorf("reason of %d bytes: %q", len(reason), reason)
	}
}

func TestGoldenNames(t *testing.T) {
	seenNames := map[string]bool{}
	for _, c := range allGolden(t) {
		if key := c.Port + "/" + c.Direction + "/" + c.Name; seenNames[key] {
			t.Errorf("%s is there twice", key)
		} else {
			seenNames[key] = true
		}
		if c.ports() == nil || c.Direction != "request" && c.Direction != "reply" {
			t.Errorf("%s: port %q, direction %q", c.Name, c.Port, c.Direction)
		}
		if (c.Meaning == nil) == (c.Error == nil) || (c.Text == nil) == (c.Hex == "") {
			t.Errorf("%s needs either a meaning or an error, and either a text or hex", c.Name)
		}
	}
}

func TestGoldenRequests(t *testing.T) {
	count := 0
	for _, c := range allGolden(t) {
		if c.Direction != "request" {
			continue
		}
		count++
		for _, port := range c.ports() {
			t.Run(port.String()+"/"+c.Name, func(t *testing.T) {
				var r wire.Request
				err := c.decoder().Decode(c.payload(t), port, c.Named, &r)
				if c.Error != nil {
					checkError(t, err, c.Error)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				sameMeaning(t, requestMeaning(&r), c.Meaning)
				checkRequestRoundTrip(t, &r, port, c.Named)
			})
		}
	}
	if count < 100 {
		t.Fatalf("only %d golden requests", count)
	}
}

func TestGoldenReplies(t *testing.T) {
	count := 0
	for _, c := range allGolden(t) {
		if c.Direction != "reply" {
			continue
		}
		count++
		t.Run(c.Name, func(t *testing.T) {
			var d wire.ClientDecoder
			var ev wire.Event
			if err := d.Decode(c.payload(t), &ev); err != nil {
				t.Fatal(err)
			}
			sameMeaning(t, eventMeaning(&ev), c.Meaning)
			if !c.Exact {
				return
			}
			frame := encodeEvent(t, &ev)
			payload, used, err := wire.SplitFrame(frame, 1<<20)
			if err != nil || used != len(frame) {
				t.Fatalf("%q splits into %d bytes of %d, error %v", frame, used, len(frame), err)
			}
			if string(payload) != *c.Text {
				t.Errorf("encoded\n got %s\nwant %s", payload, *c.Text)
			}
		})
	}
	if count == 0 {
		t.Fatal("no golden replies")
	}
}

// encodeEvent returns the frame that a broker sends for an event.
func encodeEvent(t testing.TB, ev *wire.Event) []byte {
	t.Helper()
	switch ev.Kind {
	case wire.EventOK:
		switch {
		case ev.Server != "":
			return wire.AppendHelloOK(nil, ev.Server, ev.MaxFrame, ev.MaxFrameOut, ev.MaxID, ev.MaxPrefetch, ev.MaxTypes)
		case ev.State != "":
			return wire.AppendAttached(nil, ev.ID, ev.State)
		case ev.ID != nil:
			return wire.AppendOKID(nil, ev.ID)
		}
		return wire.AppendOK(nil)
	case wire.EventError:
		code, known := wire.ParseCode(ev.Code)
		if !known {
			t.Fatalf("code %q is not in the table", ev.Code)
		}
		if ev.Cause != "" {
			return wire.AppendJobFailed(nil, ev.Reason, ev.Cause, ev.DelayMS, ev.ID)
		}
		return wire.AppendError(nil, code, ev.Reason, ev.ID)
	case wire.EventJob:
		return wire.AppendJob(nil, ev.ID, ev.Type, ev.Headers, ev.Body)
	case wire.EventResult:
		return wire.AppendResult(nil, ev.ID, ev.Body)
	case wire.EventProgress:
		return wire.AppendProgress(nil, ev.ID, ev.Body)
	case wire.EventCancel:
		return wire.AppendCancel(nil, ev.ID)
	case wire.EventPing:
		return wire.AppendPing(nil)
	}
	t.Fatalf("no frame for %v", ev.Kind)
	return nil
}

// encodeRequest returns the frame that a client sends for a request.
func encodeRequest(t testing.TB, r *wire.Request) []byte {
	t.Helper()
	switch r.Verb {
	case wire.Submit:
		return wire.AppendSubmit(nil, r)
	case wire.Cancel:
		return wire.AppendCancel(nil, r.ID)
	case wire.Join:
		return wire.AppendJoin(nil, r)
	case wire.Respond:
		return wire.AppendRespond(nil, r.ID, r.Body)
	case wire.Fail:
		return wire.AppendFail(nil, r.ID, r.Reason, !r.NoRetry, r.AfterMS)
	case wire.Progress:
		return wire.AppendWorkerProgress(nil, r.ID, r.Body)
	case wire.Release:
		return wire.AppendRelease(nil, r.ID, r.AfterMS)
	case wire.Change:
		return wire.AppendChange(nil, r)
	case wire.Attach:
		return wire.AppendAttach(nil, r.ID, r.WantProgress)
	case wire.Leave:
		return wire.AppendLeave(nil)
	case wire.Hello:
		return wire.AppendHello(nil, string(r.Token), string(r.Client), r.HeartbeatMS)
	case wire.Ping:
		return wire.AppendPing(nil)
	case wire.Pong:
		return wire.AppendPong(nil)
	}
	t.Fatalf("no frame for %v", r.Verb)
	return nil
}

// checkRequestRoundTrip encodes a decoded request and decodes it again.
func checkRequestRoundTrip(t testing.TB, r *wire.Request, port wire.Port, withID bool) {
	t.Helper()
	frame := encodeRequest(t, r)
	payload, used, err := wire.SplitFrame(frame, 1<<30)
	if err != nil || used != len(frame) {
		t.Fatalf("%q splits into %d bytes of %d, error %v", frame, used, len(frame), err)
	}
	if !json.Valid(payload) {
		t.Fatalf("encoded %q is not json", payload)
	}
	var d wire.Decoder // it has no default type, so the encoder must have written the type
	var secondReq wire.Request
	if err := d.Decode(payload, port, withID, &secondReq); err != nil {
		t.Fatalf("%s decodes to %v", payload, err)
	}
	first, second := requestMeaning(r), requestMeaning(&secondReq)
	g, _ := json.Marshal(second)
	w, _ := json.Marshal(first)
	if string(g) != string(w) {
		t.Fatalf("after encoding %s\n got %s\nwant %s", payload, g, w)
	}
}

func TestGoldenStreams(t *testing.T) {
	for _, c := range loadGolden[goldenStream](t, "streams.json") {
		t.Run(c.Name, func(t *testing.T) {
			data, err := hex.DecodeString(c.Hex)
			if err != nil {
				t.Fatal(err)
			}
			rest := data
			for i := 0; ; i++ {
				payload, used, refusal := wire.SplitFrame(rest, c.MaxFrame)
				if refusal != nil {
					if c.Error == nil {
						t.Fatal(refusal)
					}
					checkError(t, refusal, c.Error)
				}
				if refusal != nil || used == 0 {
					if (refusal != nil) != (c.Error != nil) || i != len(c.Payloads) || len(rest) != c.Rest {
						t.Fatalf("error %v after %d frames, %d bytes left", refusal, i, len(rest))
					}
					return
				}
				if i >= len(c.Payloads) || string(payload) != c.Payloads[i] || payload == nil {
					t.Fatalf("frame %d is %q", i, payload)
				}
				rest = rest[used:]
			}
		})
	}
}
