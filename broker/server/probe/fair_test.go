package probe

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// makeFair makes a type fair, so that its groups take turns.
func (d *daemon) makeFair(t tb, typ string) {
	t.Helper()
	d.callHTTP(t, "PUT", "/v1/types/"+url.PathEscape(typ), `{"fair":true}`, 200)
}

// isFair asks over HTTP whether a type is fair.
func (d *daemon) isFair(t tb, typ string) bool {
	t.Helper()
	var info struct{ Fair *bool }
	text := d.callHTTP(t, "GET", "/v1/types/"+url.PathEscape(typ), "", 200)
	if err := json.Unmarshal([]byte(text), &info); err != nil || info.Fair == nil {
		t.Fatalf("GET type %q tells no fair: %s", typ, text)
	}
	return *info.Fair
}

// takeAll lets a worker answer n jobs and returns their bodies in order.
func (d *daemon) takeAll(t tb, w worker, n int) (bodies []string) {
	t.Helper()
	for range n {
		_, body := w.nextJob()
		bodies = append(bodies, strings.Trim(body, `"`))
		w.respond(`1`)
	}
	return bodies
}

// checkTurns checks that each of n groups has exactly one of any n hand-outs in a row, and that the
// jobs of a group come in the order of their age. The first letter of a body is its group.
func checkTurns(t *testing.T, bodies []string, n int) {
	t.Helper()
	for i := 0; i+n <= len(bodies); i++ {
		seen := map[byte]bool{}
		for _, body := range bodies[i : i+n] {
			seen[body[0]] = true
		}
		if len(seen) != n {
			t.Fatalf("%v are not the turns of %d groups: %v", bodies[i:i+n], n, bodies)
		}
	}
	byGroup := map[byte][]string{}
	for _, body := range bodies {
		byGroup[body[0]] = append(byGroup[body[0]], body)
	}
	for _, of := range byGroup {
		if !slices.IsSorted(of) {
			t.Errorf("within a group age decides: %v", of)
		}
	}
}

// flood submits n jobs of a group, with numbered bodies.
func (s submitter) flood(typ, letter string, n int, fields string) {
	s.t.Helper()
	for i := range n {
		s.submitFreshWith(typ, fmt.Sprintf(`"%s%04d"`, letter, i), fields)
	}
}

func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("told, set and taken back", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ) // the type has had no job yet
		if !b.isFair(t, typ) {
			t.Error("not told")
		}
		b.callHTTP(t, "PUT", "/v1/types/"+typ, `{"fair":false}`, 200)
		if b.isFair(t, typ) {
			t.Error("still fair")
		}
		plainType := freshName("fair")
		b.submitter(t).submitFreshWith(plainType, `1`, `,"detach":true`)
		if b.isFair(t, plainType) {
			t.Error("a type is not fair by itself")
		}
	})
	t.Run("refused", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		for _, body := range []string{``, `{}`, `{"fair":null}`, `{"fair":1}`, `{"fair":"false"}`, `[]`, `{"fair":false,"x":1}`, `{"fair":false`} {
			b.callHTTP(t, "PUT", "/v1/types/"+typ, body, 400)
		}
		if !b.isFair(t, typ) {
			t.Error("a refused request changed it")
		}
	})
	t.Run("groups take turns", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "a", 60, groupsField("a"))
		s.flood(typ, "b", 20, groupsField("b"))
		s.flood(typ, "c", 20, groupsField("c"))
		w := b.servingWorker(t, typ)
		checkTurns(t, b.takeAll(t, w, 60), 3)
		b.takeAll(t, w, 40)
	})
	t.Run("without fair, age", func(t *testing.T) {
		typ := freshName("fair")
		s := b.submitter(t)
		s.flood(typ, "a", 10, groupsField("a"))
		s.flood(typ, "b", 10, groupsField("b"))
		if got := b.takeAll(t, b.servingWorker(t, typ), 20); !slices.IsSorted(got) {
			t.Errorf("order %v", got)
		}
	})
	t.Run("made fair while jobs wait, and unfair", func(t *testing.T) {
		typ := freshName("fair")
		s := b.submitter(t)
		s.flood(typ, "a", 30, groupsField("a"))
		s.flood(typ, "b", 30, groupsField("b"))
		b.makeFair(t, typ)
		w := b.servingWorker(t, typ)
		checkTurns(t, b.takeAll(t, w, 20), 2)
		b.callHTTP(t, "PUT", "/v1/types/"+typ, `{"fair":false}`, 200)
		rest := b.takeAll(t, w, 40)
		if !slices.IsSorted(rest[1:]) { // the first job was out already
			t.Errorf("order %v", rest)
		}
	})
	t.Run("the first group's turn counts", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "a", 20, groupsField("a", "shared"))
		s.flood(typ, "b", 20, groupsField("b", "shared"))
		checkTurns(t, b.takeAll(t, b.servingWorker(t, typ), 40), 2)
	})
	t.Run("a submitter is a group of its own", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s1, s2 := b.submitter(t), b.submitter(t)
		s1.flood(typ, "a", 30, "")
		s2.flood(typ, "b", 10, "")
		s2.flood(typ, "c", 10, groupsField("c"))
		checkTurns(t, b.takeAll(t, b.servingWorker(t, typ), 30), 3)
	})
	t.Run("two submitters that name one group share it", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s1, s2 := b.submitter(t), b.submitter(t)
		s1.flood(typ, "a0", 10, groupsField("a"))
		s2.flood(typ, "a1", 10, groupsField("a"))
		s2.flood(typ, "b", 20, groupsField("b"))
		checkTurns(t, b.takeAll(t, b.servingWorker(t, typ), 40), 2)
	})
	t.Run("priority comes first", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "b", 5, groupsField("b"))
		s.flood(typ, "a", 5, groupsField("a")+`,"priority":5`)
		got := b.takeAll(t, b.servingWorker(t, typ), 10)
		if got[4] != "a0004" || got[5] != "b0000" {
			t.Errorf("order %v", got)
		}
	})
	t.Run("who comes later waits one job of each busy group", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "a", 40, groupsField("a"))
		s.flood(typ, "b", 40, groupsField("b"))
		w := b.servingWorker(t, typ)
		b.takeAll(t, w, 20)
		_, _ = w.nextJob() // one job is out
		lateID := b.submitter(t).submitOne(typ, "c", groupsField("c"))
		w.respond(`1`)
		got := b.takeAll(t, w, 3)
		if !slices.Contains(got, lateID) {
			t.Errorf("%q is not among the next three: %v", lateID, got)
		}
		b.takeAll(t, w, 10) // c has no jobs now, which must not earn it turns for later
		_, _ = w.nextJob()
		b.submitter(t).flood(typ, "c", 10, groupsField("c"))
		w.respond(`1`)
		checkTurns(t, b.takeAll(t, w, 21), 3)
	})
	t.Run("a group that is held back holds nobody and saves nothing up", func(t *testing.T) {
		typ, g := freshName("fair"), freshName("fair")
		b.makeFair(t, typ)
		b.setRule(t, g, `{"concurrency":0}`)
		s := b.submitter(t)
		s.flood(typ, "c", 20, groupsField(g))
		s.flood(typ, "a", 40, groupsField("a"))
		s.flood(typ, "b", 40, groupsField("b"))
		w := b.servingWorker(t, typ)
		checkTurns(t, b.takeAll(t, w, 20), 2)
		_, _ = w.nextJob()
		b.dropRule(t, g)
		w.respond(`1`)
		checkTurns(t, b.takeAll(t, w, 45), 3)
	})
	t.Run("release uses the turn", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "a", 3, groupsField("a"))
		s.flood(typ, "b", 3, groupsField("b"))
		w := b.servingWorker(t, typ)
		var got []string
		for range 2 {
			_, body := w.nextJob()
			got = append(got, body)
			w.release("")
		}
		if got[0] == got[1] {
			t.Errorf("the same group twice in a row: %v", got)
		}
		b.takeAll(t, w, 6)
	})
	t.Run("within a group age decides, also age_ms and a delay that is over", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		lateID := s.submitFreshWith(typ, `"a1"`, groupsField("a")+`,"delay_ms":60000`)
		s.submitFreshWith(typ, `"a2"`, groupsField("a"))
		s.submitFreshWith(typ, `"a0"`, groupsField("a")+`,"age_ms":60000`)
		s.submitFreshWith(typ, `"a3"`, groupsField("a"))
		s.change(lateID, `"delay_ms":0`)
		if got := fmt.Sprint(b.takeAll(t, b.servingWorker(t, typ), 4)); got != "[a0 a1 a2 a3]" {
			t.Errorf("order %s", got)
		}
	})
	t.Run("change of groups changes the turn", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "a", 10, groupsField("a"))
		id := s.submitFreshWith(typ, `"z"`, groupsField("a"))
		s.change(id, `"groups":["z"]`)
		if got := b.takeAll(t, b.servingWorker(t, typ), 11); !slices.Contains(got[:2], "z") {
			t.Errorf("order %v", got)
		}
	})
	t.Run("a job without groups stays its submitter's, through loss and attach", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s1, s2 := b.submitter(t), b.submitter(t)
		s1.flood(typ, "a", 6, keepField)
		id := s1.submitFreshWith(typ, `"a9999"`, keepField)
		s2.flood(typ, "b", 6, "")
		b.loseSubmitter(t, s1, (*conn).close)
		s2.attach(id, "queued", "")
		got := b.takeAll(t, b.servingWorker(t, typ), 13)
		checkTurns(t, got[:12], 2)
	})
	t.Run("turns through loss of a worker", func(t *testing.T) {
		typ := freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "a", 5, groupsField("a"))
		s.flood(typ, "b", 5, groupsField("b"))
		w := b.servingWorker(t, typ)
		id, _ := w.nextJob()
		w.close()
		b.waitState(t, id, "queued")
		if got := b.takeAll(t, b.servingWorker(t, typ), 10); len(got) != 10 {
			t.Errorf("order %v", got)
		}
	})
	t.Run("among several types a fair one stands with the job whose turn it is", func(t *testing.T) {
		typ, plainType := freshName("fair"), freshName("fair")
		b.makeFair(t, typ)
		s := b.submitter(t)
		s.flood(typ, "a", 2, groupsField("a"))
		s.submitFreshWith(plainType, `"p"`, "")
		s.flood(typ, "b", 1, groupsField("b"))
		// after a0 it is group b's turn, but p is older than b0
		if got := fmt.Sprint(b.takeAll(t, b.joinWorker(t, typ, plainType), 4)); got != "[a0000 p b0000 a0001]" {
			t.Errorf("order %s", got)
		}
	})
}

// submitOne submits one job and returns its body.
func (s submitter) submitOne(typ, body, fields string) string {
	s.t.Helper()
	s.submitFreshWith(typ, quote(body), fields)
	return body
}
