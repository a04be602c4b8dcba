package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"gloom/wire"
)

func TestMaxPrefetchIsEnforced(t *testing.T) {
	for _, c := range []struct {
		limit, prefetch int
		refuse          string
	}{
		{0, wire.DefaultMaxPrefetch, ""}, {0, wire.DefaultMaxPrefetch + 1, "1 to 1000"},
		{7, 7, ""}, {7, 8, "1 to 7"}, {1, 1, ""}, {1, 0, "1 to 1"}, {5000, 5000, ""},
	} {
		d := wire.Decoder{MaxPrefetch: c.limit}
		var r wire.Request
		err := d.Decode(fmt.Appendf(nil, `{"action":"join","type":"t","prefetch":%d}`, c.prefetch), wire.WorkerPort, false, &r)
		switch {
		case c.refuse == "" && (err != nil || r.Prefetch != c.prefetch):
			t.Errorf("prefetch %d of %d is read as %d, %v", c.prefetch, c.limit, r.Prefetch, err)
		case c.refuse != "" && (err == nil || err.Code != wire.InvalidValue || !strings.Contains(err.Reason, c.refuse)):
			t.Errorf("prefetch %d of %d: %v", c.prefetch, c.limit, err)
		}
	}
}

func TestDefaultTypeMayChange(t *testing.T) {
	var d wire.Decoder
	var r wire.Request
	for _, typ := range []string{"a", "", "bb", "a"} {
		d.DefaultType = typ
		err := d.Decode([]byte(`{"action":"submit","id":"x","body":1}`), wire.SubmitPort, false, &r)
		if typ == "" {
			if err == nil || err.Code != wire.MissingField {
				t.Errorf("without a default type: %v", err)
			}
		} else if err != nil || string(r.Type) != typ {
			t.Errorf("default %q: %q, %v", typ, r.Type, err)
		}
	}
}

// TestSlicesShareThePayload: an id or a type without escapes must point into the payload,
// so that the broker's copy into a slab is the only copy.
func TestSlicesShareThePayload(t *testing.T) {
	var d wire.Decoder
	var r wire.Request
	payload := []byte(submitLine)
	if err := d.Decode(payload, wire.SubmitPort, false, &r); err != nil {
		t.Fatal(err)
	}
	for i := range payload {
		payload[i] = '#'
	}
	if string(r.ID) != "##" || string(r.Type) != "####" || strings.Trim(string(r.Body), "#") != "" {
		t.Errorf("copied: id %q, type %q, body %q", r.ID, r.Type, r.Body)
	}
	if cap(r.ID) != len(r.ID) || cap(r.Type) != len(r.Type) || cap(r.Body) != len(r.Body) {
		t.Error("appending to a slice would write into the payload")
	}
}

func TestSeveralEscapedNamesStayValid(t *testing.T) {
	var d wire.Decoder
	var r wire.Request
	long := strings.Repeat(`\u0061`, 1000)
	payload := fmt.Appendf(nil, `{"action":"submit","id":"i%s","type":"t%s","body":1}`, long, long)
	for range 3 { // the scratch buffer grows in the first round
		if err := d.Decode(payload, wire.SubmitPort, false, &r); err != nil {
			t.Fatal(err)
		}
		suffix := strings.Repeat("a", 1000)
		if string(r.ID) != "i"+suffix || string(r.Type) != "t"+suffix {
			t.Fatalf("id %.20q, type %.20q", r.ID, r.Type)
		}
	}
	hello := []byte(`{"action":"hello","token":"\u0061\"b","client":"\u0063\\d"}`)
	if err := d.Decode(hello, wire.WorkerPort, false, &r); err != nil || string(r.Token) != `a"b` || string(r.Client) != `c\d` {
		t.Errorf("token %q, client %q, %v", r.Token, r.Client, err)
	}
}

// TestLongFailReasonIsUnchanged: only the limit on frames bounds a worker's reason, which is decoded
// unchanged.
func TestLongFailReasonIsUnchanged(t *testing.T) {
	var d wire.Decoder
	var r wire.Request
	reason := strings.Repeat("why? \"because\"\n", 20000)
	frame := wire.AppendFail(nil, nil, wire.Canonical(nil, reason), true, -1)
	for range 2 {
		if err := d.Decode(frame[wire.HeaderLen:], wire.WorkerPort, false, &r); err != nil {
			t.Fatal(err)
		}
		if wire.Value(r.Reason) != reason {
			t.Fatalf("reason of %d bytes, want %d", len(wire.Value(r.Reason)), len(reason))
		}
	}
}

// TestReasonRepeatsLittle: a reason repeats only a part of what a peer sent.
func TestReasonRepeatsLittle(t *testing.T) {
	var d wire.Decoder
	var r wire.Request
	long := strings.Repeat("é", 5000)
	for _, payload := range []string{
		`{"action":"` + long + `"}`,
		`{"action":["` + long + `"]}`,
		`{"action":"submit","id":"` + long + `","body":1}`,
		`{"action":"submit","id":["` + long + `"],"body":1}`,
		`{"action":"submit","id":"a","type":{"` + long + `":1},"body":1}`,
		`{"action":"submit","id":"a","type":"t","body":1,"priority":"` + long + `"}`,
		`{"action":"submit","id":"a","type":"t","body":1,"detach":"x` + long + `"}`,
		`{"action":"submit","id":"a","type":"t","body":1} ` + long,
		`["` + long + `"]`,
	} {
		err := d.Decode([]byte(payload), wire.SubmitPort, false, &r)
		if err == nil {
			t.Fatalf("%.60s is accepted", payload)
		}
		checkReason(t, err.Reason)
		if err.Error() != err.Code.String()+": "+err.Reason {
			t.Errorf("error text %q", err.Error())
		}
	}
}

func TestVerbsBelongToPorts(t *testing.T) {
	submitter, worker := 0, 0
	for v := wire.Submit; v <= wire.Pong; v++ {
		if v.String() == "none" {
			t.Errorf("verb %d has no name", v)
		}
		if v.AllowedOn(wire.SubmitPort) {
			submitter++
		}
		if v.AllowedOn(wire.WorkerPort) {
			worker++
		}
		if !v.AllowedOn(wire.SubmitPort) && !v.AllowedOn(wire.WorkerPort) {
			t.Errorf("%v is on no port", v)
		}
	}
	if submitter != 7 || worker != 9 {
		t.Errorf("%d verbs for submitters, %d for workers", submitter, worker)
	}
	if v := wire.Verb(99); v.String() != "none" || v.AllowedOn(wire.SubmitPort) {
		t.Error("verb 99 is something")
	}
}

// TestRepeatedTypesAreBounded: a name that is listed twice counts once, but a list with very many
// repetitions is refused.
func TestRepeatedTypesAreBounded(t *testing.T) {
	for _, c := range []struct {
		distinctCount, count int
		want                 string
	}{
		{wire.MaxTypes, wire.MaxTypes, ""},
		{1, 10 * wire.MaxTypes, ""},
		{wire.MaxGroups, 10 * wire.MaxTypes, ""},
		{wire.MaxTypes, 10 * wire.MaxTypes, ""},
		{wire.MaxTypes + 1, wire.MaxTypes + 1, "types must have 1 to 1000 names, not 1001"},
		{1, 10*wire.MaxTypes + 1, "types must have 1 to 1000 names, not 10001"},
		{wire.MaxGroups, 1_000_000, "types must have 1 to 1000 names, not 1000000"},
	} {
		frame := []byte(`{"action":"join","types":["0"`)
		for i := 1; i < c.count; i++ {
			frame = fmt.Appendf(frame, `, "%d"`, i%c.distinctCount)
		}
		var d wire.Decoder
		var r wire.Request
		err := d.Decode(append(frame, "]}"...), wire.WorkerPort, false, &r)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%d names, %d different: %v", c.count, c.distinctCount, err)
		case c.want == "" && len(r.Types) != c.distinctCount:
			t.Errorf("%d names, %d different: %d are told", c.count, c.distinctCount, len(r.Types))
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%d names, %d different: %v, want %q", c.count, c.distinctCount, err, c.want)
		}
	}
}
