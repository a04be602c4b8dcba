package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// wantOverloaded reads an overloaded error, whose reason must name the limit.
func wantOverloaded(t *testing.T, s submitter, id, names string) {
	t.Helper()
	f := s.wantErrorFor("overloaded", id)
	if !strings.Contains(strings.ToLower(f.text("reason")), names) {
		t.Errorf("reason %q does not speak of %q", f.text("reason"), names)
	}
}

func TestLimitsRefuseSubmits(t *testing.T) {
	t.Parallel()
	t.Run("--max-jobs", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-jobs=5")
		typ := freshName("limit")
		s := b.submitter(t)
		for i := range 5 {
			s.submit(fmt.Sprintf("j%d", i), typ, `0`)
		}
		s.sendSubmit("j5", typ, `0`, "")
		wantOverloaded(t, s, "j5", "job")
		other := b.submitter(t)
		other.sendSubmit("j6", freshName("limit"), `0`, "") // the limit counts the jobs of all submitters
		wantOverloaded(t, other, "j6", "job")
		if got := drainOrder(t, b, typ, 5); len(got) != 5 {
			t.Fatal(got)
		}
		for i := range 5 {
			s.wantResult(fmt.Sprintf("j%d", i), `0`)
		}
		s.submit("j5", typ, `0`) // room again
	})
	t.Run("--max-type-jobs", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-type-jobs=3")
		type1, type2 := freshName("limit"), freshName("limit")
		s := b.submitter(t)
		for i := range 3 {
			s.submit(fmt.Sprintf("a%d", i), type1, `0`)
		}
		s.sendSubmit("a3", type1, `0`, "")
		wantOverloaded(t, s, "a3", "type")
		for i := range 3 {
			s.submit(fmt.Sprintf("b%d", i), type2, `0`)
		}
		drainOrder(t, b, type1, 3)
		for i := range 3 {
			s.wantResult(fmt.Sprintf("a%d", i), `0`)
		}
		s.submit("a3", type1, `0`)
	})
	t.Run("--max-submitter-jobs", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-submitter-jobs=3")
		typ := freshName("limit")
		s1, s2 := b.submitter(t), b.submitter(t)
		for i := range 3 {
			s1.submit(fmt.Sprintf("a%d", i), typ, `0`)
		}
		s1.sendSubmit("a3", freshName("limit"), `0`, "")
		wantOverloaded(t, s1, "a3", "submitter")
		for i := range 3 {
			s2.submit(fmt.Sprintf("b%d", i), typ, `0`)
		}
		drainOrder(t, b, typ, 6)
		for i := range 3 {
			s1.wantResult(fmt.Sprintf("a%d", i), `0`)
		}
		s1.submit("a3", typ, `0`)
	})
	t.Run("--max-bytes", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-bytes=1MiB")
		typ := freshName("limit")
		s := b.submitter(t)
		body := quote(strings.Repeat("b", 100<<10))
		accepted := 0
		for accepted < 12 {
			id := fmt.Sprintf("m%d", accepted)
			s.sendSubmit(id, typ, body, "")
			f := s.recv()
			if f.kind() != "ack" {
				if f.text("error") != "overloaded" || f.text("id") != id || !strings.Contains(f.text("reason"), "byte") {
					t.Fatalf("got %s", f)
				}
				break
			}
			accepted++
		}
		if accepted < 7 || accepted > 10 {
			t.Fatalf("%d jobs of 100 KiB fitted in 1 MiB", accepted)
		}
		s.submit("small", typ, `0`) // a smaller job still fits
		drainOrder(t, b, typ, accepted+1)
		for range accepted + 1 {
			s.want("result")
		}
		for i := range accepted {
			s.submit(fmt.Sprintf("again%d", i), typ, body)
		}
		s.close()
		s2 := b.submitter(t)
		waitFor(t, "the bytes of a submitter that is gone are free", func() error {
			s2.sendSubmit("last", typ, body, "")
			if f := s2.recv(); f.kind() != "ack" {
				return fmt.Errorf("%s", f)
			}
			return nil
		})
	})
	t.Run("room comes back with a submitter that is gone", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-jobs=4")
		s := b.submitter(t)
		for i := range 4 {
			s.submit(fmt.Sprintf("j%d", i), freshName("limit"), `0`)
		}
		s.close()
		s2 := b.submitter(t)
		waitFor(t, "room for a job", func() error {
			s2.sendSubmit("new", freshName("limit"), `0`, "")
			if f := s2.recv(); f.kind() != "ack" {
				return fmt.Errorf("%s", f)
			}
			return nil
		})
	})
	t.Run("a requeue is no submit", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-jobs=2", "--max-type-jobs=2", "--max-submitter-jobs=2")
		typ := freshName("limit")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		s.submit("lost", typ, `0`)
		w.wantJob("lost")
		s.submit("waits", typ, `0`)
		w.close()
		waitRequeued(t, b, typ, s, "lost")
		successor := b.servingWorker(t, typ)
		for _, id := range []string{"lost", "waits"} {
			successor.wantJob(id)
			successor.respond(`1`)
			s.wantResult(id, `1`)
		}
	})
	t.Run("a duplicate is told so when the queue is full", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--max-jobs=1")
		s := b.submitter(t)
		s.submit("one", freshName("limit"), `0`)
		s.sendSubmit("one", freshName("limit"), `0`, "")
		s.wantErrorFor("id_exists|overloaded", "one")
	})
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"submit", "work"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			const limit = 10
			b := start(t, fmt.Sprintf("--max-conns=%d", limit))
			addr := map[string]string{"submit": b.submitAddr, "work": b.workerAddr}[port]
			var conns []*conn
			refusals := 0
			for range 3 * limit {
				c := dial(t, addr)
				// a refused connection may be closed before it has sent anything
				_ = c.write(packFrame(`{"action":"may I?"}`))
				f, err := c.next(patience)
				switch {
				case err != nil:
					t.Fatalf("read: %v, want a reply or a refusal", err)
				case f.text("error") == "unknown_action":
					conns = append(conns, c)
				case f.text("error") == "overloaded":
					refusals++
					if err := c.awaitClose(patience); err != nil {
						t.Errorf("behind the refusal: %v, want the end", err)
					}
				default:
					t.Fatalf("got %s", f)
				}
			}
			if len(conns) != limit || refusals != 2*limit {
				t.Errorf("%d connections served and %d refused, limit %d", len(conns), refusals, limit)
			}
			for _, c := range conns {
				c.t = t
				c.wantQuiet() // the flood has not affected the connections served before
			}
			for _, c := range conns[:2] {
				c.close()
			}
			waitFor(t, "a connection fits again", func() error {
				c, err := dialTry(addr)
				if err != nil {
					return err
				}
				_ = c.write(packFrame(`{"action":"may I?"}`))
				f, err := c.next(time.Second)
				c.close()
				if err == nil && f.text("error") != "unknown_action" {
					err = fmt.Errorf("got %s", f)
				}
				return err
			})
		})
	}
}
