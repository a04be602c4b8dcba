package probe

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"gloom/bench/throwaway/redistest"
)

// TestModesOfUniqueKeys: each mode does what it says, and a key is released when it should be.
func TestModesOfUniqueKeys(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		name := freshName()
		add := func(want int, result, key string, unique object, extra ...any) string {
			t.Helper()
			o := object{"name": name, "argument": object{}, "unique": unique}
			unique["key"] = key
			for i := 0; i < len(extra); i += 2 {
				o[extra[i].(string)] = extra[i+1]
			}
			r := d.expect(t, want, "POST", "/job", o)
			if r.text("unique") != result {
				t.Fatalf("%s, wanted %q", r, result)
			}
			return r.text("job_id")
		}
		a := add(201, "", "keep", object{})
		if b := add(200, "kept", "keep", object{"while": "waiting"}); b != a {
			t.Errorf("kept %s, wanted %s", b, a)
		}
		add(201, "", "other", object{})
		d.job(t, name)
		w := d.puller(t, 1, []string{name})
		if id := w.pullOne(t); id != a {
			t.Fatalf("took %s, wanted %s", id, a)
		}
		if b := add(200, "kept", "keep", object{"mode": "replace"}); b != a {
			t.Errorf("one that runs: kept %s, wanted %s", b, a)
		}
		w.reportSuccess(t, a, 1)
		b := add(201, "", "keep", object{"while": "waiting"})
		c := add(200, "replaced", "keep", object{"mode": "replace"})
		if c == b {
			t.Error("the one that was replaced has the new id")
		}
		d.expect(t, 404, "GET", "/job/"+b, nil)
		d.expectError(t, 409, "wrong_state", "POST", "/v1/jobs/"+b+"/retry", nil)
		d.expect(t, 204, "DELETE", "/job/"+c, nil)
		e := add(201, "", "keep", object{"mode": "extend"}, "delay", 0.1)
		if f := add(200, "extended", "keep", object{"mode": "extend", "max_ms": 300}, "delay", 3600); f != e {
			t.Errorf("extended %s, wanted %s", f, e)
		}
		unusedName := freshName() // no other job holds the key
		v := d.puller(t, 1, []string{unusedName})
		id := add(201, "", "window", object{"while": "window", "for_ms": 60000}, "name", unusedName)
		if takenID := v.pullOne(t); takenID != id {
			t.Fatalf("took %s, wanted %s", takenID, id)
		}
		v.reportSuccess(t, id, 1)
		if f := add(200, "kept", "window", object{}, "name", unusedName); f != id {
			t.Errorf("a window keeps %s, wanted %s", f, id)
		}
		for takenID := ""; takenID != e; w.reportSuccess(t, takenID, 1) { // within its max_ms
			takenID = w.pullOne(t)
		}
	})
}

func TestBadUnique(t *testing.T) {
	d := sharedDaemon(t, "memory")
	for _, c := range []struct{ code, unique string }{
		{"invalid_type", `"k"`}, {"missing_field", `{}`}, {"invalid_value", `{"key":""}`},
		{"invalid_value", fmt.Sprintf(`{"key":"%0257d"}`, 1)}, {"invalid_type", `{"key":1}`},
		{"invalid_value", `{"key":"k","whilst":"live"}`}, {"invalid_value", `{"key":"k","while":"ever"}`},
		{"invalid_value", `{"key":"k","mode":"drop"}`}, {"missing_field", `{"key":"k","while":"window"}`},
		{"invalid_value", `{"key":"k","for_ms":5}`}, {"invalid_value", `{"key":"k","while":"window","for_ms":0}`},
		{"invalid_value", `{"key":"k","max_ms":5}`}, {"invalid_type", `{"key":"k","mode":"extend","max_ms":"5"}`},
	} {
		body := `{"name":"x","argument":{},"unique":` + c.unique + `}`
		d.expectError(t, 400, c.code, "POST", "/job", body)
	}
	d.expectError(t, 400, "invalid_value", "POST", "/jobs", `[{"name":"x","argument":{},"unique":{"key":"k"}}]`)
	d.expectError(t, 400, "invalid_value", "POST", "/job", `{"name":"x","argument":{},"unique":{"key":"k"}}`, "Idempotency-Key: a")
}

// TestUniqueAtOnce: a hundred requests at the same time make one job.
func TestUniqueAtOnce(t *testing.T) {
	inBothStores(t, func(t *testing.T, d *daemon) {
		var mu sync.Mutex
		madeCount, ids := 0, map[string]bool{}
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				r, err := d.try("POST", "/job", object{"name": "at once", "argument": object{}, "unique": object{"key": "k"}})
				mu.Lock()
				defer mu.Unlock()
				if err != nil || r.status != 200 && r.status != 201 {
					t.Errorf("%s, %v", r, err)
				}
				if r.status == 201 {
					madeCount++
				}
				ids[r.text("job_id")] = true
			})
		}
		wg.Wait()
		if madeCount != 1 || len(ids) != 1 {
			t.Errorf("%d jobs were made, the ids are %v", madeCount, ids)
		}
	})
}

// TestUniqueKilled: hundreds of clients enqueue with one key while the master is killed and its
// standby takes over. In the end there is one job. A window outlives its job and both masters.
func TestUniqueKilled(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	flags := append([]string{"--redis=" + s.URL()}, quickFlags...)
	first := start(t, flags...)
	first.waitUntilReady(t)
	windowed := object{"name": "window", "argument": object{}, "unique": object{"key": "k", "while": "window", "for_ms": 600_000}}
	w := first.puller(t, 1, []string{"window"})
	ended := first.expect(t, 201, "POST", "/job", windowed).text("job_id")
	w.pullOne(t)
	w.reportSuccess(t, ended, 1)
	second := start(t, flags...)

	var mu sync.Mutex
	madeCount, answers, ids := 0, 0, map[string]bool{}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 100 {
		d := []*daemon{first, second}[i%2]
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, err := d.try("POST", "/job", object{"name": "x", "argument": object{}, "unique": object{"key": "k"}})
				if err != nil {
					return // killed
				}
				if r.status == 503 {
					continue
				}
				mu.Lock()
				answers++
				if r.status == 201 {
					madeCount++
				}
				ids[r.text("job_id")] = true
				mu.Unlock()
			}
		})
	}
	waitUntil(t, "an answer", func() error {
		mu.Lock()
		defer mu.Unlock()
		if answers == 0 {
			return errors.New("none")
		}
		return nil
	})
	first.Kill()
	second.waitUntilReady(t)
	second.expect(t, 200, "POST", "/job", object{"name": "x", "argument": object{}, "unique": object{"key": "k"}})
	close(stop)
	wg.Wait()
	if madeCount > 1 || len(ids) != 1 {
		t.Errorf("%d jobs were made, the ids are %v", madeCount, ids)
	}
	if jobs := second.expect(t, 200, "GET", "/v1/jobs?name=x", nil).json["jobs"].([]any); len(jobs) != 1 {
		t.Errorf("%d jobs are there: %v", len(jobs), jobs)
	}
	if id := second.expect(t, 200, "POST", "/job", windowed).text("job_id"); id != ended {
		t.Errorf("the window keeps %s, wanted %s", id, ended)
	}
}
