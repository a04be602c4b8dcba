package probe

import (
	"fmt"
	"testing"
)

func TestPrefetchBoundsOutstandingJobs(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("so many jobs may be out", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "3")
		var ids []string
		for range 4 {
			ids = append(ids, s.submitFresh(typ, `1`))
		}
		for _, id := range ids[:3] {
			w.wantJob(id)
		}
		w.wantQuiet()
		w.respondTo(ids[1], `"b"`)
		s.wantResult(ids[1], `"b"`)
		w.wantJob(ids[3])
		w.wantQuiet()
		for _, i := range []int{3, 0, 2} { // in any order
			w.respondTo(ids[i], fmt.Sprint(i))
			s.wantResult(ids[i], fmt.Sprint(i))
		}
		w.wantQuiet()
	})
	t.Run("waiting jobs at once, ok first", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s := b.submitter(t)
		var ids []string
		for i := range 5 {
			ids = append(ids, s.submitFreshWith(typ, `1`, fmt.Sprintf(`,"priority":%d`, -i)))
		}
		w := b.workerWithPrefetch(t, typ, "5")
		for _, id := range ids {
			w.wantJob(id)
		}
	})
	t.Run("the socket names its jobs", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w, other := b.submitter(t), b.workerWithPrefetch(t, typ, "2"), b.worker(t)
		id, queuedID := s.submitFresh(typ, `1`), s.submitFresh(freshName("elsewhere"), `1`)
		w.wantJob(id)
		otherType := freshName("prefetch")
		other.joinWith(otherType, `,"prefetch":2`)
		othersID := s.submitFresh(otherType, `1`)
		other.wantJob(othersID)
		for _, verb := range []string{"respond", "fail", "progress"} {
			w.send(`{"action":%q,"body":1}`, verb)
			checkReason(t, w.wantError("missing_field"), "id")
			for _, wrongID := range []string{"never", queuedID, othersID} {
				w.send(`{"action":%q,"body":1,"id":%q}`, verb, wrongID)
				w.wantErrorFor("unknown_id", wrongID)
			}
			for _, v := range []string{`5`, `[]`, `""`, `true`} {
				w.send(`{"action":%q,"body":1,"id":%s}`, verb, v)
				w.wantError("invalid_type")
			}
		}
		w.respondTo(id, `2`)
		s.wantResult(id, `2`)
		w.send(`{"action":"respond","body":1,"id":%q}`, id) // already answered
		w.wantErrorFor("unknown_id", id)
		s.wantQuiet()
	})
	t.Run("without a job it is unknown_id", func(t *testing.T) {
		t.Parallel()
		w := b.workerWithPrefetch(t, freshName("prefetch"), "2")
		for _, verb := range []string{"respond", "fail", "progress"} {
			w.send(`{"action":%q,"body":1}`, verb)
			w.wantError("missing_field")
			w.send(`{"action":%q,"body":1,"id":"x"}`, verb)
			w.wantErrorFor("unknown_id", "x")
		}
	})
	t.Run("even with 1, and ever after", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "1")
		id, next := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.wantQuiet()
		w.send(`{"action":"respond","body":1}`)
		w.wantError("missing_field")
		w.join(typ) // a join without prefetch: one job at a time, but the id is still needed
		w.send(`{"action":"respond","body":1}`)
		w.wantError("missing_field")
		w.respondTo(id, `1`)
		w.wantJob(next)
		w.send(`{"action":"respond","body":1}`)
		w.wantError("missing_field")
		w.respondTo(next, `1`)
	})
	t.Run("ids by value", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "2")
		s.submit(typ+"é", typ, `1`)
		w.wantJob(typ + "é")
		w.send(`{"action":"respond","id":"%s\u00e9","body":2}`, typ)
		w.wantOK()
		s.wantResult(typ+"é", `2`)
	})
	t.Run("a failed respond leaves the job", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "2")
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.send(`{"action":"respond","id":%q}`, id)
		f := w.wantError("missing_field")
		if f.text("id") != id {
			t.Errorf("%s lacks the id of the job", f)
		}
		w.respondTo(id, `2`)
		s.wantResult(id, `2`)
	})
	t.Run("sockets with room take turns", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w1, w2 := b.submitter(t), b.workerWithPrefetch(t, typ, "3"), b.workerWithPrefetch(t, typ, "3")
		for range 3 {
			w1.wantJob(s.submitFresh(typ, `1`))
			w2.wantJob(s.submitFresh(typ, `1`))
		}
		waitingID := s.submitFresh(typ, `1`)
		w1.wantQuiet()
		w2.wantQuiet()
		_ = waitingID
	})
	t.Run("a plain worker among them", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, plainWorker, w := b.submitter(t), b.servingWorker(t, typ), b.workerWithPrefetch(t, typ, "2")
		plainWorker.wantJob(s.submitFresh(typ, `1`))
		w.wantJob(s.submitFresh(typ, `1`))
		w.wantJob(s.submitFresh(typ, `1`))
		s.submitFresh(typ, `1`)
		plainWorker.wantQuiet()
		w.wantQuiet()
	})
	t.Run("rejoin with a larger number", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "1")
		var ids []string
		for range 4 {
			ids = append(ids, s.submitFresh(typ, `1`))
		}
		w.wantJob(ids[0])
		w.joinWith(typ, `,"prefetch":3`)
		w.wantJob(ids[1])
		w.wantJob(ids[2])
		w.wantQuiet()
	})
	t.Run("rejoin with a smaller one", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "3")
		var ids []string
		for range 5 {
			ids = append(ids, s.submitFresh(typ, `1`))
		}
		for _, id := range ids[:3] {
			w.wantJob(id)
		}
		w.joinWith(typ, `,"prefetch":2`)
		w.respondTo(ids[0], `1`)
		w.wantQuiet() // two jobs are out: the worker is full
		w.respondTo(ids[2], `1`)
		w.wantJob(ids[3])
		w.wantQuiet()
	})
	t.Run("what is out counts against another type", func(t *testing.T) {
		t.Parallel()
		type1, type2 := freshName("prefetch"), freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, type1, "2")
		oldID := s.submitFresh(type1, `1`)
		w.wantJob(oldID)
		newID1, newID2 := s.submitFresh(type2, `1`), s.submitFresh(type2, `1`)
		w.joinWith(type2, `,"prefetch":2`)
		w.wantJob(newID1)
		w.wantQuiet()
		w.respondTo(oldID, `"old"`)
		s.wantResult(oldID, `"old"`)
		w.wantJob(newID2)
	})
	t.Run("a plain worker at work asks for prefetch", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id, next := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.joinWith(typ, `,"prefetch":2`)
		w.wantJob(next)
		w.send(`{"action":"respond","body":1}`)
		w.wantError("missing_field")
		w.respondTo(id, `1`)
		s.wantResult(id, `1`)
		w.respondTo(next, `2`)
		s.wantResult(next, `2`)
	})
	t.Run("lost with several out", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "3")
		onceID := s.submitFreshWith(typ, `1`, `,"retries":0`)
		var ids []string
		for range 3 {
			ids = append(ids, s.submitFreshWith(typ, `1`, `,"retries":1`))
		}
		w.wantJob(onceID)
		w.wantJob(ids[0])
		w.wantJob(ids[1])
		w.close()
		s.wantErrorFor("job_failed", onceID) // each job that was out has used a run
		for _, id := range ids[:2] {
			b.waitState(t, id, "queued")
		}
		w = b.workerWithPrefetch(t, typ, "3")
		for _, id := range ids { // in the order of their age; the one that never ran comes last
			w.wantJob(id)
		}
		w.close()
		failedIDs := map[string]bool{}
		for range 2 {
			failedIDs[s.wantError("job_failed").text("id")] = true
		}
		if !failedIDs[ids[0]] || !failedIDs[ids[1]] {
			t.Errorf("job_failed for %v, want %v", failedIDs, ids[:2])
		}
		b.waitState(t, ids[2], "queued")
	})
	t.Run("an overdue run stops the whole socket", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "3")
		slowID := s.submitFreshWith(typ, `1`, `,"timeout_ms":60,"retries":0`)
		w.wantJob(slowID)
		s.wantErrorFor("job_failed", slowID)
		next := s.submitFresh(typ, `1`)
		w.wantQuiet() // the worker has room, but must first answer its overdue run
		w.respondTo(slowID, `"late"`)
		w.wantJob(next)
		s.wantQuiet()
	})
	t.Run("an overdue run, others still answered", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "2")
		fineID := s.submitFresh(typ, `1`)
		slowID := s.submitFreshWith(typ, `1`, `,"timeout_ms":60,"retries":0`)
		w.wantJob(fineID)
		w.wantJob(slowID)
		s.wantErrorFor("job_failed", slowID)
		w.respondTo(fineID, `1`)
		s.wantResult(fineID, `1`)
		waitingID := s.submitFresh(typ, `1`)
		w.wantQuiet()
		w.send(`{"action":"progress","id":%q,"body":1}`, slowID) // frees nothing
		_ = w.recv()
		w.wantQuiet()
		w.send(`{"action":"fail","id":%q}`, slowID)
		w.wantOK()
		w.wantJob(waitingID)
	})
	t.Run("progress and fail by name", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "2")
		firstID := s.submitFreshWith(typ, `1`, `,"progress":true,"retries":0`)
		secondID := s.submitFreshWith(typ, `1`, `,"progress":true,"retries":0`)
		w.wantJob(firstID)
		w.wantJob(secondID)
		w.send(`{"action":"progress","id":%q,"body":"two"}`, secondID)
		w.wantOK()
		s.wantProgress(secondID, `"two"`)
		w.send(`{"action":"fail","id":%q,"reason":"broken"}`, firstID)
		w.wantOK()
		s.wantErrorFor("job_failed", firstID)
		w.respondTo(secondID, `2`)
		s.wantResult(secondID, `2`)
	})
	t.Run("size_error with several out", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "2")
		firstID, secondID := s.submitFresh(typ, `1`), s.submitFresh(typ, `1`)
		w.wantJob(firstID)
		w.wantJob(secondID)
		w.writeRaw(announceFrame(0x7fffffff))
		w.wantError("size_error")
		w.wantEOF()
		// The answer cannot be matched to a job: each job fails or is retried.
		waitFor(t, "no job is out on the closed socket", func() error {
			if b.jobState(t, firstID) == "running" || b.jobState(t, secondID) == "running" {
				return errNotYet
			}
			return nil
		})
		retried := 0
		for _, id := range []string{firstID, secondID} {
			if b.jobState(t, id) == "queued" {
				retried++
			}
		}
		for range 2 - retried {
			s.wantError("job_failed")
		}
		successor := b.servingWorker(t, typ)
		for range retried {
			id, _ := successor.nextJob()
			successor.respond(`2`)
			s.wantResult(id, `2`)
		}
		successor.wantQuiet()
		s.wantQuiet()
	})
	t.Run("ten thousand jobs through one socket", func(t *testing.T) {
		t.Parallel()
		typ := freshName("prefetch")
		s, w := b.submitter(t), b.workerWithPrefetch(t, typ, "100")
		const jobs = 10_000
		go func() {
			var batch []byte
			for i := range jobs {
				batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":"%s-%d","type":%q,"body":%d,"ack":false}`, typ, i, typ, i))...)
			}
			_ = s.write(batch)
		}()
		done := make(chan error, 1)
		go func() {
			for answers := 0; answers < jobs; {
				f, err := w.next(patience)
				if err != nil {
					done <- err
					return
				}
				if f.kind() == "job" {
					answers++
					if err := w.write(packFrame(fmt.Sprintf(`{"action":"respond","id":%s,"body":%s}`, f.keys["id"], f.keys["body"]))); err != nil {
						done <- err
						return
					}
				} else if f.kind() != "ok" {
					done <- fmt.Errorf("got %s", f)
					return
				}
			}
			done <- nil
		}()
		for i := range jobs {
			s.wantResult(fmt.Sprintf("%s-%d", typ, i), fmt.Sprint(i))
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}
