package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	gloom "gloom/clients/go"
)

// mariaURL returns the address of an empty database.
func mariaURL(t *testing.T, s *mariadbtest.Server) string {
	t.Helper()
	return fmt.Sprintf("mysql://root@/%s?socket=%s", s.Database(t), url.QueryEscape(s.Socket()))
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
}

// readLedger returns a client's counts, added up over its types, and checks that they balance.
func readLedger(d *daemon, client string) (map[string]float64, error) {
	r, err := d.try("GET", "/"+client+"/state", "")
	if err != nil || r.status != 200 {
		return nil, errors.Join(err, fmt.Errorf("%s", r))
	}
	sum := map[string]float64{}
	types, _ := r.json["types"].(map[string]any)
	for typ, k := range types {
		c, _ := k.(map[string]any)
		ends := 0.0
		for key, v := range c {
			n, _ := v.(float64)
			sum[key] += n
			if key != "added" && key != "oldest_ms" {
				ends += n
			}
		}
		if c["added"] != ends {
			return nil, fmt.Errorf("%s: %v does not balance", typ, c)
		}
	}
	return sum, nil
}

// crashLoop adds lines to daemons of one store, which are killed and started again. It checks that
// each acknowledged line has run, that no line was ingested twice, and that the counts balance.
func crashLoop(t *testing.T, dirs []string, flags ...string) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	flags = append(flags, "--lock-ttl=10s", "--sweep=200ms", "--retry-delay=100ms", "--retry-for=10m", "--batch=3")
	daemons := make([]*daemon, len(dirs))
	for i, dir := range dirs {
		daemons[i] = startIn(t, dir, flags...)
	}
	tenant := freshClient()
	ranPath := filepath.Join(t.TempDir(), "ran")
	if err := os.Mkdir(ranPath, 0o777); err != nil {
		t.Fatal(err)
	}
	daemons[0].addHandler(t, tenant, "k", "sh", fmt.Sprintf(`echo run >>%s/"$1"; if [ $(($1 %% 7)) = 0 ]; then sleep 0.05; fi; echo "J: child|$1"`, ranPath))
	var mu sync.Mutex
	current := make([]*client, len(dirs))
	for i, d := range daemons {
		current[i] = d.client
	}
	acked := map[string]string{} // payload to id
	sentCount := 0
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				c := current[(i+n)%len(current)]
				first := sentCount
				sentCount += 2
				mu.Unlock()
				r, err := c.try("POST", "/"+tenant+"/job/k/add", fmt.Sprintf("%d\n%d\n", first, first+1))
				if err == nil && r.status == 200 {
					var ids struct{ IDs []string }
					_ = json.Unmarshal([]byte(r.body), &ids)
					mu.Lock()
					for k, id := range ids.IDs {
						acked[fmt.Sprint(first+k)] = id
					}
					mu.Unlock()
				}
				time.Sleep(3 * time.Millisecond)
			}
		})
	}
	rounds := 3
	if *fullRun {
		rounds = 30
	}
	for range rounds {
		time.Sleep(time.Duration(50+rng.IntN(400)) * time.Millisecond)
		i := rng.IntN(len(daemons))
		daemons[i].Kill()
		d := startIn(t, dirs[i], flags...)
		mu.Lock()
		daemons[i], current[i] = d, d.client
		mu.Unlock()
	}
	close(stop)
	wg.Wait()
	t.Cleanup(func() {
		if t.Failed() {
			for _, d := range daemons {
				t.Log(d.Log.String())
			}
		}
	})
	waitUntil(t, "all that was accepted has run", func() error {
		sum, err := readLedger(daemons[0], tenant)
		if err != nil {
			return err
		}
		for payload, id := range acked {
			if _, err := os.Stat(filepath.Join(ranPath, payload)); err != nil {
				r, _ := daemons[0].try("GET", "/"+tenant+"/job/get/"+id, "")
				return fmt.Errorf("%s was accepted and has not run: %v: %s", payload, sum, r)
			}
		}
		k := daemons[0].counts(t, tenant, "k")
		if k["waiting"].(float64)+k["running"].(float64)+k["deferred"].(float64) > 0 {
			return fmt.Errorf("%v", k)
		}
		return nil
	})
	// Lines of an add without an answer may have run, too.
	k, child := daemons[0].counts(t, tenant, "k"), daemons[0].counts(t, tenant, "child")
	if n := k["added"].(float64); n < float64(len(acked)) || n > float64(sentCount) || child["added"] != k["ok"] {
		t.Errorf("%d acknowledged of %d sent; %v, their follow-on jobs %v", len(acked), sentCount, k, child)
	}
	for payload, id := range acked {
		if r := daemons[0].job(t, tenant, id); r.text("state") != "ok" {
			t.Fatalf("%s: %s", payload, r)
		}
	}
	t.Logf("%d accepted of %d sent, %v", len(acked), sentCount, k)
}

// TestKillLosesNoAcceptedJob: no accepted job is lost.
func TestKillLosesNoAcceptedJob(t *testing.T) {
	t.Run("one daemon, SQLite", func(t *testing.T) {
		t.Parallel()
		crashLoop(t, []string{t.TempDir()})
	})
	t.Run("two daemons, SQLite", func(t *testing.T) {
		t.Parallel()
		crashLoop(t, []string{t.TempDir(), t.TempDir()}, "--store=sqlite:"+filepath.Join(t.TempDir(), "shared.db"))
	})
	t.Run("two daemons, MariaDB", func(t *testing.T) {
		t.Parallel()
		crashLoop(t, []string{t.TempDir(), t.TempDir()}, "--store="+mariaURL(t, mariadbtest.Shared(t)))
	})
}

// TestDamagedJournalPartsAreSetAside: damaged parts in the middle of the journal are set aside and
// counted, and the lines after them run.
func TestDamagedJournalPartsAreSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lateMarker := filepath.Join(t.TempDir(), "late")
	store := "--store=sqlite:" + lateMarker + "/store.db" // the store is away until this directory exists
	d := startAway(t, dir, store)
	client := freshClient()
	first := d.addOne(t, client, "a", "first of all")
	d.addOne(t, client, "a", "to be damaged")
	last := d.addOne(t, client, "a", "last of all")
	d.Kill()
	names, err := filepath.Glob(filepath.Join(dir, "journal", "*"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	hit := false
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if at := strings.Index(string(b), "to be damaged"); at >= 0 {
			b[at] ^= 0x20
			hit = true
			// The rest looks as if the daemon had also died while it was writing.
			b = append(b, "#:Batch date=2026-01-01T00:00:00.000Z,bytes=100,jobt"...)
			if err := os.WriteFile(name, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !hit {
		t.Fatal("the journal does not hold the payload")
	}
	if err := os.Mkdir(lateMarker, 0o700); err != nil {
		t.Fatal(err)
	}
	e := startIn(t, dir, store)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(e.Log.String())
		}
	})
	e.addHandler(t, client, "a", "sh", `cat`)
	e.awaitEnd(t, client, first, "ok")
	e.awaitEnd(t, client, last, "ok")
	if badFiles, _ := filepath.Glob(filepath.Join(dir, "journal", "*.bad")); len(badFiles) != 1 {
		t.Errorf("kept aside: %v\n%s", badFiles, e.Log.String())
	}
}

// TestStoreAway: while the store is away, adds are accepted; when it is back, all jobs run.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	db, err := mariadbtest.Start(mariadbtest.Options{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	d := start(t, "--store="+mariaURL(t, db), "--lock-ttl=3s", "--retry-delay=100ms")
	client := freshClient()
	d.addHandler(t, client, "a", "sh", `exit 0`)
	d.awaitEnd(t, client, d.addOne(t, client, "a", "x"), "ok")
	db.Kill()
	var ids []string
	for range 20 {
		ids = append(ids, d.addOne(t, client, "a", "x"))
	}
	waitUntil(t, "reads say so", func() error {
		r := d.ask(t, "GET", "/"+client+"/handler/get/a", "")
		if r.status != 503 || r.text("error") != "store_unavailable" {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	d.expect(t, 200, "GET", "/healthz", "")
	if err := db.Launch(); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		d.awaitEnd(t, client, id, "ok")
	}
	if sum, err := readLedger(d, client); err != nil || sum["ok"] != 21 {
		t.Errorf("%v, %v", sum, err)
	}
}

// TestGloomWorkers: a job whose handler has the language gloom runs at a worker of the broker.
func TestGloomWorkers(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "workers")
	d := start(t, "--worker-addr=unix:"+socket, "--retry-delay=100ms", "--retry-for=2s")
	client := freshClient()
	d.addHandler(t, client, "w", "gloom", "on other hosts")
	text, object := d.addOne(t, client, "w", "no JSON"), d.addOne(t, client, "w", `{"n": 1}`)
	badID := d.addOne(t, client, "w", `"bad"`)
	if r := d.job(t, client, text); r.text("state") != "waiting" {
		t.Errorf("without a worker: %s", r)
	}
	w := &gloom.Worker{Type: client + "-w", Options: []gloom.Option{gloom.Addrs("unix:" + socket)}, Handler: func(_ context.Context, j *gloom.Job) (any, error) {
		if string(j.Body) == `"bad"` {
			return nil, gloom.Fatal(errors.New("never"))
		}
		return j.Body, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = w.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	if got := d.awaitEnd(t, client, text, "ok"); got != `"no JSON"` {
		t.Errorf("%q", got)
	}
	if got := d.awaitEnd(t, client, object, "ok"); got != `{"n": 1}` {
		t.Errorf("%q", got)
	}
	d.awaitEnd(t, client, badID, "failed")
}
