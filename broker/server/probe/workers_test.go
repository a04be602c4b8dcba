package probe

import "testing"

func TestLongestIdleFirst(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("in the order of joining", func(t *testing.T) {
		typ := freshName("idle")
		var ws []worker
		for range 5 {
			ws = append(ws, b.servingWorker(t, typ))
		}
		s := b.submitter(t)
		for _, w := range ws {
			w.wantJob(s.submitFresh(typ, `0`))
		}
	})
	t.Run("in the order of answering", func(t *testing.T) {
		typ := freshName("idle")
		s := b.submitter(t)
		var ws []worker
		var ids []string
		for range 4 {
			w := b.servingWorker(t, typ)
			ids = append(ids, s.submitFresh(typ, `0`))
			w.wantJob(ids[len(ids)-1])
			ws = append(ws, w)
		}
		for _, i := range []int{2, 0, 3, 1} {
			ws[i].respond(`0`)
			s.wantResult(ids[i], `0`)
		}
		for _, i := range []int{2, 0, 3, 1} {
			ws[i].wantJob(s.submitFresh(typ, `0`))
		}
	})
	t.Run("they take turns", func(t *testing.T) {
		typ := freshName("idle")
		w1, w2, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
		for range 10 {
			checkServes(t, s, w1, typ)
			checkServes(t, s, w2, typ)
		}
	})
	t.Run("one that left is passed over", func(t *testing.T) {
		typ := freshName("idle")
		w1, w2, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
		w1.join(freshName("elsewhere"))
		w2.wantJob(s.submitFresh(typ, `0`))
		w1.wantQuiet()
	})
}

func TestWorkerJoinsAgain(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("idle, to another type", func(t *testing.T) {
		one, two := freshName("one"), freshName("two")
		w, s := b.servingWorker(t, one), b.submitter(t)
		w.join(two)
		staysID := s.submitFresh(one, `0`)
		w.wantQuiet()
		checkServes(t, s, w, two)
		w.join(one)
		w.wantJob(staysID)
	})
	t.Run("idle, to the same type", func(t *testing.T) {
		typ := freshName("same")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		w.join(typ)
		w.join(typ)
		checkServes(t, s, w, typ)
		w.wantQuiet()
	})
	t.Run("idle, a hundred times", func(t *testing.T) {
		w, s := b.worker(t), b.submitter(t)
		for range 100 {
			typ := freshName("hop")
			w.join(typ)
			checkServes(t, s, w, typ)
		}
	})
	t.Run("at work", func(t *testing.T) {
		one, two := freshName("one"), freshName("two")
		w, s := b.servingWorker(t, one), b.submitter(t)
		oldID := s.submitFresh(one, `0`)
		w.wantJob(oldID)
		waitingID := s.submitFresh(two, `0`)
		oldTypeID := s.submitFresh(one, `0`)
		w.join(two) // the join gets its ok at once, but no second job comes
		w.wantQuiet()
		w.respond(`"old"`)
		s.wantResult(oldID, `"old"`)
		w.wantJob(waitingID)
		w.respond(`"new"`)
		s.wantResult(waitingID, `"new"`)
		w.wantQuiet() // the worker no longer serves the old type
		b.servingWorker(t, one).wantJob(oldTypeID)
	})
	t.Run("at work, there and back", func(t *testing.T) {
		one, two := freshName("one"), freshName("two")
		w, s := b.servingWorker(t, one), b.submitter(t)
		id := s.submitFresh(one, `0`)
		w.wantJob(id)
		w.join(two)
		w.join(one)
		w.respond(`1`)
		s.wantResult(id, `1`)
		checkServes(t, s, w, one)
	})
	t.Run("at work, to the same type", func(t *testing.T) {
		typ := freshName("same")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		id, next := s.submitFresh(typ, `0`), s.submitFresh(typ, `0`)
		w.wantJob(id)
		w.join(typ)
		w.wantQuiet()
		w.respond(`1`)
		s.wantResult(id, `1`)
		w.wantJob(next)
	})
	t.Run("at work, then lost", func(t *testing.T) {
		one, two := freshName("one"), freshName("two")
		w, s := b.servingWorker(t, one), b.submitter(t)
		id := s.submitFresh(one, `0`)
		w.wantJob(id)
		w.join(two)
		w.close()
		// the job goes back to its own type
		successor := b.servingWorker(t, one)
		f := successor.want("job")
		if f.text("id") != id || f.text("type") != one {
			t.Fatalf("job %s, want %q of type %q", f, id, one)
		}
		successor.respond(`1`)
		s.wantResult(id, `1`)
	})
	t.Run("a type without jobs", func(t *testing.T) {
		typ := freshName("none")
		w := b.servingWorker(t, typ)
		w.wantQuiet()
		s := b.submitter(t)
		checkServes(t, s, w, typ)
	})
}
