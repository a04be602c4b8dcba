package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"gloom/wire"
)

// FuzzScan compares the scanner with encoding/json, on any bytes.
func FuzzScan(f *testing.F) {
	for _, seed := range scanSeeds {
		f.Add([]byte(seed))
	}
	for _, c := range allGolden(f) {
		f.Add(c.payload(f))
	}
	var e wire.Envelope
	f.Fuzz(func(t *testing.T, payload []byte) { checkScan(t, &e, payload) })
}

// FuzzDecodeEncode demands, in both directions, that a decoded message keeps its meaning when it is
// encoded and decoded again. It also demands that a client can read each refusal.
func FuzzDecodeEncode(f *testing.F) {
	for _, c := range allGolden(f) {
		for _, port := range c.ports() {
			f.Add(c.payload(f), port == wire.WorkerPort, c.Named)
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, worker, withID bool) {
		port := wire.SubmitPort
		if worker {
			port = wire.WorkerPort
		}
		d := wire.Decoder{DefaultType: "default"}
		var r wire.Request
		if refusal := d.Decode(payload, port, withID, &r); refusal != nil {
			checkRefusal(t, refusal)
		} else {
			checkReadFields(t, payload, &r)
			checkRequestRoundTrip(t, &r, port, withID)
		}
		checkEventRoundTrip(t, payload)
	})
}

// checkRefusal sends an error as the broker does and reads it as a client does.
func checkRefusal(t *testing.T, refusal *wire.Error) {
	t.Helper()
	checkReason(t, refusal.Reason)
	var c wire.ClientDecoder
	var ev wire.Event
	frame := wire.AppendError(nil, refusal.Code, refusal.Reason, refusal.ID)
	if err := c.Decode(frame[wire.HeaderLen:], &ev); err != nil {
		t.Fatalf("%v is sent as %q: %v", refusal, frame, err)
	}
	if ev.Code != refusal.Code.String() || ev.Reason != refusal.Reason || !bytes.Equal(ev.ID, refusal.ID) {
		t.Fatalf("%v, id %q, arrives as %+v", refusal, refusal.ID, ev)
	}
}

// checkReadFields compares an accepted request with what encoding/json reads.
func checkReadFields(t *testing.T, payload []byte, r *wire.Request) {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(payload, &m); err != nil {
		t.Fatalf("%q: %v", payload, err)
	}
	if r.Body != nil && string(r.Body) != string(m["body"]) {
		t.Fatalf("%q: body %q", payload, r.Body)
	}
	if r.ID != nil {
		var id string
		if err := json.Unmarshal(m["id"], &id); err != nil || id != wire.Value(r.ID) || id == "" || len(id) > wire.MaxNameBytes {
			t.Fatalf("%q: id %q, want %q, %v", payload, wire.Value(r.ID), id, err)
		}
	}
	var priority int64
	if raw, present := m["priority"]; present && (r.Verb == wire.Submit || r.HasPriority) {
		if err := json.Unmarshal(raw, &priority); err != nil || string(raw) == "null" {
			t.Fatalf("%q: priority %s accepted, %v", payload, raw, err)
		}
	}
	if r.Priority != priority {
		t.Fatalf("%q: priority %d, want %d", payload, r.Priority, priority)
	}
}

func checkEventRoundTrip(t *testing.T, payload []byte) {
	t.Helper()
	var c wire.ClientDecoder
	var first, second wire.Event
	if err := c.Decode(payload, &first); err != nil {
		return
	}
	if first.Kind == wire.EventError {
		if _, known := wire.ParseCode(first.Code); !known || first.Reason == "" {
			return // no broker sends such an error
		}
	}
	want := eventMeaning(&first)
	if first.Kind == wire.EventOK {
		if first.Server == "" {
			delete(want, "max_frame")
			delete(want, "max_id")
			delete(want, "max_prefetch")
		} else {
			delete(want, "id") // a reply to hello has no id
		}
	}
	var secondDecoder wire.ClientDecoder
	frame := encodeEvent(t, &first)
	if err := secondDecoder.Decode(frame[wire.HeaderLen:], &second); err != nil {
		t.Fatalf("%q is encoded as %q: %v", payload, frame, err)
	}
	got, err1 := json.Marshal(eventMeaning(&second))
	exp, err2 := json.Marshal(want)
	if err1 != nil || err2 != nil || string(got) != string(exp) {
		t.Fatalf("%q is encoded as %q\n got %s\nwant %s", payload, frame, got, exp)
	}
}

// FuzzSplit splits a stream into frames, once as a whole and once in pieces of any sizes, and
// compares the results.
func FuzzSplit(f *testing.F) {
	for _, c := range loadGolden[goldenStream](f, "streams.json") {
		f.Add(goldenCase{Hex: c.Hex}.payload(f), []byte{1, 3, 2}, uint16(c.MaxFrame))
	}
	f.Fuzz(func(t *testing.T, stream, sizes []byte, max uint16) {
		var complete, pieces frameCollector
		complete.feed(stream, int(max))
		rest := stream
		for i := 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(sizes) > 0 {
				n = min(n, 1+int(sizes[i%len(sizes)]))
			}
			pieces.feed(rest[:n], int(max))
			rest = rest[n:]
		}
		if pieces.String() != complete.String() {
			t.Fatalf("in pieces %v\nwhole %v", &pieces, &complete)
		}
		var joined []byte
		for _, payload := range complete.payloads {
			if len(payload) > int(max) {
				t.Fatalf("a frame of %d bytes, at most %d", len(payload), max)
			}
			joined = append(joined, frame(payload)...)
		}
		if joined = append(joined, complete.buf...); !bytes.Equal(joined, stream) {
			t.Fatalf("the frames of %q make %q", stream, joined)
		}
	})
}

// FuzzCanonical demands that encoding/json reads a canonical form as the original value, and that
// every spelling of the value has the same canonical form.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{"", "a1", "é漢😀", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "\xff", "\xed\xa0\x80", "\uFFFD", strings.Repeat("\x01", 300)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		canonical := wire.Canonical(nil, value)
		valid := strings.ToValidUTF8(value, "") == value
		if !valid {
			var b strings.Builder // each invalid byte becomes a U+FFFD of its own
			for _, r := range value {
				b.WriteRune(r)
			}
			value = b.String()
		}
		if got := wire.Value(canonical); got != value {
			t.Fatalf("%q: canonical %q stands for %q", value, canonical, got)
		}
		var read string
		if err := json.Unmarshal([]byte(`"`+string(canonical)+`"`), &read); err != nil || read != value {
			t.Fatalf("%q: canonical %q is read as %q, %v", value, canonical, read, err)
		}
		if second := wire.Canonical(nil, wire.Value(canonical)); !bytes.Equal(second, canonical) {
			t.Fatalf("%q: canonical %q, then %q", value, canonical, second)
		}
		if err := wire.CheckName("id", value); err != nil {
			return
		}
		spelling, err := json.Marshal(value) // json.Marshal escapes more characters than the canonical form does
		if err != nil {
			t.Fatal(err)
		}
		var d wire.Decoder
		var r wire.Request
		if refusal := d.Decode([]byte(`{"action":"cancel","id":`+string(spelling)+`}`), wire.SubmitPort, false, &r); refusal != nil {
			t.Fatalf("%s: %v", spelling, refusal)
		}
		if !bytes.Equal(r.ID, canonical) || !utf8.Valid(r.ID) {
			t.Fatalf("%s is %q, want %q", spelling, r.ID, canonical)
		}
	})
}
