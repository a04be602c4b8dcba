package wire_test

import (
	"errors"
	"strings"
	"testing"

	"gloom/wire"
)

func TestInvalidRepliesAreErrors(t *testing.T) {
	for payload, message := range map[string]string{
		`{"ok":"true"}`:                                     "ok must be true",
		`{"ok":false}`:                                      "ok must be true",
		`{"ok":1,"id":"a"}`:                                 "ok must be true",
		`{"ok":true,"id":5}`:                                "id must be a string",
		`{"ok":true,"server":[]}`:                           "server must be a string",
		`{"ok":true,"limits":5}`:                            "limits",
		`{"ok":true,"limits":{"max_frame":-1}}`:             "max_frame",
		`{"ok":true,"limits":{"max_id":"x"}}`:               "max_id",
		`{"ok":true,"limits":{"max_prefetch":1.5}}`:         "max_prefetch",
		`{"error":"job_failed"}`:                            "reason",
		`{"error":5,"reason":"x"}`:                          "error must be a string",
		`{"error":"x","reason":null}`:                       "reason must be a string",
		`{"error":"x","reason":"y","id":[]}`:                "id must be a string",
		`{"action":"job","id":"a","type":"t"}`:              "body",
		`{"action":"job","id":"a","body":1}`:                "type",
		`{"action":"job","type":"t","body":1}`:              "id is missing",
		`{"action":"job","id":1,"type":"t","body":1}`:       "id must be a string",
		`{"action":"cancel"}`:                               "id is missing",
		`{"action":5}`:                                      "action must be a string",
		`{"id":7,"body":1}`:                                 "id must be a string",
		`{"id":null,"progress":1}`:                          "id must be a string",
		``:                                                  "empty frame",
		`[]`:                                                "object",
		`{"ok":true`:                                        "json",
		"{\"id\":\"\xff\",\"body\":1}":                      "utf-8",
		`{"ok":"` + strings.Repeat("a", 1000) + `","id":5}`: "1002 bytes",
	} {
		var d wire.ClientDecoder
		var ev wire.Event
		err := d.Decode([]byte(payload), &ev)
		if err == nil || !strings.Contains(err.Error(), message) || errors.Is(err, wire.ErrUnknownFrame) {
			t.Errorf("%.60s: %v, want %q in it", payload, err, message)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%.60s: error of %d bytes", payload, len(err.Error()))
		}
	}
}

func TestUnknownRepliesAreReported(t *testing.T) {
	for _, payload := range []string{`{}`, `{"id":"a"}`, `{"body":1}`, `{"progress":1}`, `{"action":"dance","id":"a"}`, `{"hello":1}`} {
		var d wire.ClientDecoder
		var ev wire.Event
		if err := d.Decode([]byte(payload), &ev); !errors.Is(err, wire.ErrUnknownFrame) {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

func TestReusedEventIsReset(t *testing.T) {
	var d wire.ClientDecoder
	var ev wire.Event
	for _, payload := range []string{
		`{"action":"job","id":"a","type":"t","body":1}`, `{"error":"x","reason":"y","id":"b"}`,
		`{"ok":true,"server":"s","limits":{"max_frame":1,"max_id":2,"max_prefetch":3}}`, `{"ok":true}`,
	} {
		if err := d.Decode([]byte(payload), &ev); err != nil {
			t.Fatal(err)
		}
	}
	sameMeaning(t, eventMeaning(&ev), map[string]any{"kind": "ok"})
}

// TestErrorKeyDecides: if a message has keys of several kinds of frames, the key error decides.
func TestErrorKeyDecides(t *testing.T) {
	var d wire.ClientDecoder
	var ev wire.Event
	if err := d.Decode([]byte(`{"ok":true,"id":"a","body":1,"action":"job","error":"expired","reason":"late"}`), &ev); err != nil || ev.Kind != wire.EventError {
		t.Errorf("%v, %v", ev.Kind, err)
	}
}
