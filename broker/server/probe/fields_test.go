package probe

import (
	"fmt"
	"strings"
	"testing"
)

const year = "31536000000"

// integerKey is an integer key of a verb, with the range of its values.
type integerKey struct{ key, low, high string }

var submitNumbers = []integerKey{
	{"delay_ms", "0", year}, {"timeout_ms", "0", year}, {"expires_ms", "0", year},
	{"backoff_ms", "0", "86400000"}, {"retries", "0", "1000"},
}

var (
	nonIntegers = []string{`"5"`, `""`, `1.5`, `5.0`, `5e0`, `1E3`, `-1.5`, `true`, `false`, `[]`, `[5]`, `{}`}
	nonBooleans = []string{`0`, `1`, `"true"`, `""`, `[]`, `{}`, `1.5`}
	hugeNumbers = []string{`99999999999999999999`, `-99999999999999999999`, `9223372036854775808`, `1` + strings.Repeat("0", 300)}
)

// checkReason checks that the reason of an error contains all parts, such as field, value and
// range.
func checkReason(t *testing.T, f frame, parts ...string) {
	t.Helper()
	reason := strings.ReplaceAll(f.text("reason"), ",", "")
	for _, p := range parts {
		if !strings.Contains(reason, p) {
			t.Errorf("reason %q does not name %q", f.text("reason"), p)
		}
	}
	if len(reason) > 1000 {
		t.Errorf("a reason of %d bytes", len(reason))
	}
}

func isNumber(v string) bool { return v[0] == '-' || v[0] >= '0' && v[0] <= '9' }

func TestSubmitNumbersAreChecked(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, n := range submitNumbers {
		t.Run(n.key, func(t *testing.T) {
			t.Parallel()
			s := b.submitter(t)
			typ := freshName("field")
			refuse := func(v, code string, parts ...string) {
				t.Helper()
				id := freshName("field")
				s.sendSubmit(id, typ, `1`, fmt.Sprintf(`,%q:%s`, n.key, v))
				checkReason(t, s.wantErrorFor(code, id), parts...)
				s.sendSubmit(id, typ, `1`, `,"ack":false`+fmt.Sprintf(`,%q:%s`, n.key, v)) // refused even then
				s.wantErrorFor(code, id)
				s.submit(id, freshName("elsewhere"), `1`) // a refused request changes nothing
			}
			for _, v := range nonIntegers {
				parts := []string{n.key, n.high}
				if isNumber(v) {
					parts = append(parts, v)
				}
				refuse(v, "invalid_type", parts...)
			}
			refuse(`-1`, "invalid_value", n.key, "-1", n.high)
			refuse(plusOne(n.high), "invalid_value", n.key, plusOne(n.high), n.high)
			for _, v := range hugeNumbers {
				refuse(v, "invalid_value", n.key, n.high)
			}
			small := "1"
			if n.key == "expires_ms" {
				small = "60000" // a deadline of 1 ms would pass during the checks
			}
			for _, v := range []string{n.low, small, n.high} {
				s.submitFreshWith(freshName("elsewhere"), `1`, fmt.Sprintf(`,%q:%s`, n.key, v))
			}
			// null counts as absent, so the job is handled like any other
			w := b.servingWorker(t, typ)
			id := s.submitFreshWith(typ, `1`, fmt.Sprintf(`,%q:null`, n.key))
			w.wantJob(id)
			w.respond(`2`)
			s.wantResult(id, `2`)
			s.wantQuiet()
		})
	}
	t.Run("all at their ends", func(t *testing.T) {
		s := b.submitter(t)
		s.submitFreshWith(freshName("ends"), `1`, `,"delay_ms":0,"timeout_ms":`+year+`,"expires_ms":`+year+`,"backoff_ms":86400000,"retries":1000`)
		s.submitFreshWith(freshName("ends"), `1`, `,"delay_ms":31535999999,"expires_ms":`+year)
		s.wantQuiet()
	})
	t.Run("delay_ms not below expires_ms", func(t *testing.T) {
		s := b.submitter(t)
		for _, pair := range [][2]string{{"100", "100"}, {"101", "100"}, {year, "1"}, {year, year}} {
			id := freshName("field")
			s.sendSubmit(id, "t", `1`, fmt.Sprintf(`,"delay_ms":%s,"expires_ms":%s`, pair[0], pair[1]))
			checkReason(t, s.wantErrorFor("invalid_value", id), "delay_ms")
		}
		s.submitFreshWith(freshName("field"), `1`, `,"delay_ms":60000,"expires_ms":0`) // 0: no expiry
		s.submitFreshWith(freshName("field"), `1`, `,"delay_ms":60000,"expires_ms":60001`)
		s.submitFreshWith(freshName("field"), `1`, `,"delay_ms":60000,"expires_ms":null`)
	})
}

func plusOne(digits string) string {
	var n int64
	fmt.Sscan(digits, &n)
	return fmt.Sprint(n + 1)
}

func TestSubmitBooleansAreChecked(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, key := range []string{"detach", "ack", "progress"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			s := b.submitter(t)
			for _, v := range nonBooleans {
				id := freshName("field")
				s.sendSubmit(id, freshName("t"), `1`, fmt.Sprintf(`,%q:%s`, key, v))
				checkReason(t, s.wantErrorFor("invalid_type", id), key)
				s.submit(id, freshName("t"), `1`)
			}
			typ := freshName("field")
			w := b.servingWorker(t, typ)
			id := s.submitFreshWith(typ, `1`, fmt.Sprintf(`,%q:null`, key))
			w.wantJob(id)
			w.respond(`2`)
			s.wantResult(id, `2`)
		})
	}
}

func TestJoinFieldsAreChecked(t *testing.T) {
	t.Parallel()
	b := shared(t)
	limit := helloLimits(t, b)["max_prefetch"]
	typ := freshName("join")
	w, s := b.servingWorker(t, typ), b.submitter(t)
	refuse := func(t *testing.T, fields, code string, parts ...string) {
		t.Helper()
		w := worker{&conn{t, w.net, w.in}}
		w.send(`{"action":"join","type":"elsewhere"%s}`, fields)
		checkReason(t, w.wantError(code), parts...)
		checkServes(t, s, w, typ) // still joined as before, with answers that need no id
	}
	t.Run("prefetch of a wrong kind", func(t *testing.T) {
		for _, v := range nonIntegers {
			refuse(t, `,"prefetch":`+v, "invalid_type", "prefetch", fmt.Sprint(limit))
		}
	})
	t.Run("prefetch out of range", func(t *testing.T) {
		for _, v := range append([]string{`0`, `-1`, fmt.Sprint(limit + 1)}, hugeNumbers...) {
			refuse(t, `,"prefetch":`+v, "invalid_value", "prefetch", fmt.Sprint(limit))
		}
	})
	t.Run("cancel of a wrong kind", func(t *testing.T) {
		for _, v := range nonBooleans {
			refuse(t, `,"cancel":`+v, "invalid_type", "cancel")
		}
	})
	t.Run("null is absent", func(t *testing.T) {
		w := worker{&conn{t, w.net, w.in}}
		w.joinWith(typ, `,"prefetch":null,"cancel":null`)
		checkServes(t, s, w, typ) // responds without an id, because the worker joined without prefetch
	})
	t.Run("the ends", func(t *testing.T) {
		w := b.worker(t)
		w.joinWith(typ, fmt.Sprintf(`,"prefetch":%d,"cancel":true`, limit))
		w.joinWith(freshName("elsewhere"), `,"prefetch":1,"cancel":false`)
	})
}

func TestFailFieldsAreChecked(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("fail")
	w, s := b.servingWorker(t, typ), b.submitter(t)
	id := s.submitFresh(typ, `1`)
	w.wantJob(id)
	refuse := func(t *testing.T, fields, codes string, parts ...string) {
		t.Helper()
		w := worker{&conn{t, w.net, w.in}}
		w.send(`{"action":"fail"%s}`, fields)
		checkReason(t, w.wantError(codes), parts...)
		w.wantQuiet()
	}
	t.Run("reason of a wrong kind", func(t *testing.T) {
		for _, v := range []string{`5`, `true`, `[]`, `{}`, `["x"]`} {
			refuse(t, `,"reason":`+v, "invalid_type", "reason")
		}
	})
	t.Run("reason empty", func(t *testing.T) { refuse(t, `,"reason":""`, "invalid_type|invalid_value", "reason") })
	t.Run("retry of a wrong kind", func(t *testing.T) {
		for _, v := range nonBooleans {
			refuse(t, `,"retry":`+v, "invalid_type", "retry")
		}
	})
	t.Run("delay_ms of a wrong kind", func(t *testing.T) {
		for _, v := range nonIntegers {
			refuse(t, `,"delay_ms":`+v, "invalid_type", "delay_ms", year)
		}
	})
	t.Run("delay_ms out of range", func(t *testing.T) {
		for _, v := range append([]string{`-1`, plusOne(year)}, hugeNumbers...) {
			refuse(t, `,"delay_ms":`+v, "invalid_value", "delay_ms", year)
		}
	})
	t.Run("the job is still there, and nulls are absent", func(t *testing.T) {
		w, s := worker{&conn{t, w.net, w.in}}, submitter{&conn{t, s.net, s.in}}
		w.send(`{"action":"fail","reason":null,"retry":null,"delay_ms":null}`)
		w.wantOK()
		w.wantJob(id) // retried at once
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("progress without body", func(t *testing.T) {
		w, s := worker{&conn{t, w.net, w.in}}, submitter{&conn{t, s.net, s.in}}
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.send(`{"action":"progress"}`)
		checkReason(t, w.wantError("missing_field"), "body")
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
}

func TestCancelFieldsAreChecked(t *testing.T) {
	t.Parallel()
	b := shared(t)
	s := b.submitter(t)
	s.send(`{"action":"cancel"}`)
	checkReason(t, s.wantError("missing_field"), "id")
	for _, v := range []string{`5`, `true`, `[]`, `{}`, `""`, `"\ud800"`} {
		s.send(`{"action":"cancel","id":%s}`, v)
		checkReason(t, s.wantError("invalid_type"), "id")
	}
	s.send(`{"action":"cancel","id":"%s"}`, strings.Repeat("x", 1025))
	checkReason(t, s.wantError("invalid_type|invalid_value|unknown_id"))
}

// TestVerbOfOtherPortIsRefused: a verb of the other port is refused.
func TestVerbOfOtherPortIsRefused(t *testing.T) {
	t.Parallel()
	b := shared(t)
	s, w := b.submitter(t), b.servingWorker(t, freshName("port"))
	for _, verb := range []string{"fail", "progress", "leave"} {
		s.send(`{"action":%q}`, verb)
		checkReason(t, s.wantError("invalid_action"), "not_a_slave")
	}
	w.send(`{"action":"cancel","id":"x"}`)
	checkReason(t, w.wantError("invalid_action"), "not_a_master")
	w.send(`{"action":"cancel"}`)
	checkReason(t, w.wantError("invalid_action"), "not_a_master")
}

// TestForeignKeysAddNoKeys: a peer that asks for no new feature gets no new keys in frames, whatever
// keys of other requests it sends.
func TestForeignKeysAddNoKeys(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("foreign")
	s, w := b.submitter(t), b.worker(t)
	w.send(`{"action":"join","type":%q,"delay_ms":"x","retries":[],"ack":5,"heartbeat_ms":"often","detach":7}`, typ)
	w.wantOK()
	id := s.submitFreshWith(typ, `1`, `,"prefetch":"x","cancel":5,"retry":7,"reason":[],"heartbeat_ms":1,"token":5,"client":{}`)
	w.wantJob(id)
	w.send(`{"action":"respond","body":1,"id":[],"delay_ms":"x","retry":5,"reason":"","type":9}`)
	w.wantOK()
	s.wantResult(id, `1`)
}
