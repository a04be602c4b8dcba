package broker_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker"
)

var listingSeed = flag.Uint64("listing-seed", 0, "seed of TestListingShowsEachJobOnce; 0 takes one by the clock")

// listedJob is a job in the naive list.
type listedJob struct {
	id, typ, state string
	groups         []string
	at             int64
	sub, worker    broker.Peer
}

func (j *listedJob) matches(q *broker.JobFilter, now int64) bool {
	return (q.Type == nil || string(q.Type) == j.typ) && (q.State == "" || q.State == j.state) &&
		(q.Group == nil || slices.Contains(j.groups, string(q.Group))) && strings.Contains(j.id, q.ID) &&
		now-j.at >= int64(q.MinAge) && (q.Submitter == 0 || q.Submitter == j.sub) &&
		(q.Worker == 0 || q.Worker == j.worker)
}

// listingWorld is a core and a naive list of its jobs.
type listingWorld struct {
	t          *testing.T
	rng        *rand.Rand
	core       *broker.Broker
	now        int64
	n          int
	jobs       map[string]*listedJob
	maxJobs    int
	submitters []broker.Peer
	worker     broker.Peer // a worker with room for some jobs of type a
}

func (w *listingWorld) noteEffects(fx []broker.Effect) {
	for _, e := range fx {
		switch e.Op {
		case broker.OpJob:
			w.jobs[string(e.ID)].state, w.jobs[string(e.ID)].worker = "running", e.Peer
		case broker.OpRefuse:
			w.t.Fatalf("%s is refused: %+v", e.ID, e.Reason)
		}
	}
}

// change carries out a random command.
func (w *listingWorld) change() {
	w.now += w.rng.Int64N(1000)
	randomJob := func() *listedJob {
		ids := slices.Sorted(maps.Keys(w.jobs))
		return w.jobs[ids[w.rng.IntN(len(ids))]]
	}
	switch v := w.rng.IntN(10); {
	case v < 5 && len(w.jobs) < w.maxJobs || len(w.jobs) == 0:
		w.submit()
	case v < 7:
		j := randomJob()
		fx, code := w.core.Revoke(w.now, []byte(j.id), false)
		switch {
		case code == broker.NotProcessing && j.state == "running":
		case code != 0:
			w.t.Fatalf("%+v cannot be cancelled: code %d", j, code)
		default:
			w.recordJobEnd(j)
		}
		w.noteEffects(fx)
	case v < 9:
		j := randomJob()
		if j.state != "running" {
			return
		}
		fx := w.core.Respond(w.now, w.worker, []byte(j.id), []byte("2"), false)
		w.recordJobEnd(j)
		w.noteEffects(fx)
	default:
		w.noteEffects(w.core.Tick(w.now))
	}
}

// submit submits a job of any kind.
func (w *listingWorld) submit() {
	w.n++
	j := &listedJob{id: fmt.Sprintf("j%d", w.n), typ: []string{"a", "b"}[w.rng.IntN(2)], state: "queued", at: w.now, sub: w.submitters[w.rng.IntN(len(w.submitters))]}
	s := &broker.Submission{ID: []byte(j.id), Type: []byte(j.typ), Body: []byte("1"), NoAck: true}
	if w.rng.IntN(3) == 0 {
		j.groups = []string{"g", "h"}[w.rng.IntN(2):]
		for _, g := range j.groups {
			s.Groups = append(s.Groups, []byte(g))
		}
	}
	if w.rng.IntN(4) == 0 {
		j.state, s.Delay = "delayed", time.Hour
	}
	s.Detach = w.rng.IntN(4) == 0
	if s.Detach {
		j.sub = 0
	}
	if !s.Detach && w.rng.IntN(4) == 0 {
		s.Keep = time.Hour
	}
	w.jobs[j.id] = j
	w.noteEffects(w.core.Submit(w.now, map[bool]broker.Peer{true: w.submitters[0], false: j.sub}[j.sub == 0], s))
}

// recordJobEnd records that a job has ended: it leaves the list, unless the core keeps its outcome.
func (w *listingWorld) recordJobEnd(j *listedJob) {
	if info, there := w.core.Explain(w.now, []byte(j.id)); there && info.State == "ended" && j.state != "ended" {
		j.state, j.worker = "ended", 0
		return
	}
	delete(w.jobs, j.id)
}

func (w *listingWorld) randomFilter() *broker.JobFilter {
	q := &broker.JobFilter{State: append([]string{"", ""}, broker.JobStates...)[w.rng.IntN(6)]}
	if w.rng.IntN(3) > 0 {
		q.Type = []byte{"ab"[w.rng.IntN(2)]}
	}
	switch w.rng.IntN(6) {
	case 0:
		q.Group = []byte{"gh"[w.rng.IntN(2)]}
	case 1:
		q.ID = fmt.Sprint(w.rng.IntN(10))
	case 2:
		q.MinAge = time.Duration(w.rng.Int64N(w.now + 1))
	case 3:
		q.Submitter = w.submitters[w.rng.IntN(len(w.submitters))]
	case 4:
		q.Worker = w.worker
	}
	return q
}

func (w *listingWorld) matching(q *broker.JobFilter) map[string]bool {
	out := map[string]bool{}
	for id, j := range w.jobs {
		if j.matches(q, w.now) {
			out[id] = true
		}
	}
	return out
}

// TestListingShowsEachJobOnce compares listings with a naive list, while jobs come, change and end
// between pages. Each job that matches throughout is listed exactly once. No job is listed at a
// moment at which it does not match. CountJobs and RevokeJobs select the same jobs as the listing.
func TestListingShowsEachJobOnce(t *testing.T) {
	seed := *listingSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-listing-seed %d", seed)
	rounds := 300
	if testing.Short() || broker.InvariantsEnabled {
		rounds = 60
	}
	x := &listingWorld{t: t, rng: rand.New(rand.NewPCG(seed, 1)), core: broker.New(broker.Config{}), now: 1, jobs: map[string]*listedJob{}}
	x.submitters = []broker.Peer{x.core.AddSubmitter(), x.core.AddSubmitter()}
	x.worker = x.core.AddWorker()
	x.noteEffects(x.core.Join(x.now, x.worker, &broker.JoinRequest{Type: []byte("a"), Prefetch: 7}))
	// Begin with many jobs, so that their records lie far apart.
	x.maxJobs = 2500
	for len(x.jobs) < x.maxJobs {
		x.submit()
	}
	for x.maxJobs = 100; len(x.jobs) > x.maxJobs; {
		x.change()
	}
	listedOnce := 0
	for round := range rounds {
		q := x.randomFilter()
		q.MinAge = min(q.MinAge, time.Duration(x.now)) // a job that is old enough stays old enough
		wantIDs := x.matching(q)
		seenCounts := map[string]int{}
		for from := 0; from >= 0; {
			matching := x.matching(q)
			from = x.core.Jobs(x.now, from, 1+x.rng.IntN(5), q, func(j *broker.JobInfo) {
				if seenCounts[string(j.ID)]++; !matching[string(j.ID)] {
					t.Fatalf("seed %d, round %d: %s %s is listed for %+v", seed, round, j.State, j.ID, q)
				}
			})
			for range x.rng.IntN(4) {
				x.change()
			}
			matching = x.matching(q)
			for id := range wantIDs {
				if !matching[id] {
					delete(wantIDs, id)
				}
			}
		}
		for id := range wantIDs {
			if seenCounts[id] != 1 {
				t.Fatalf("seed %d, round %d: %s is listed %d times for %+v", seed, round, id, seenCounts[id], q)
			}
			listedOnce++
		}
		n := 0
		for from := 0; from >= 0; {
			var counted int
			counted, from = x.core.CountJobs(x.now, from, q)
			n += counted
		}
		if want := len(x.matching(q)); n != want {
			t.Fatalf("seed %d, round %d: %d jobs are counted for %+v, want %d", seed, round, n, q, want)
		}
		if x.rng.IntN(10) == 0 {
			x.cancelAll(q)
		}
	}
	if listedOnce == 0 {
		t.Errorf("seed %d: nothing was ever listed", seed)
	}
}

func (w *listingWorld) cancelAll(q *broker.JobFilter) {
	want := w.matching(q)
	for id := range want {
		if s := w.jobs[id].state; s == "ended" || s == "running" {
			delete(want, id) // running jobs have a test of their own
		}
	}
	if q.State == "running" {
		return
	}
	done := 0
	for from := 0; from >= 0; {
		var fx []broker.Effect
		var n int
		fx, n, from = w.core.RevokeJobs(w.now, from, math.MaxInt, q)
		done += n
		w.noteEffects(fx)
	}
	if done != len(want) {
		w.t.Fatalf("%d jobs are cancelled for %+v, want %d", done, q, len(want))
	}
	for id := range want {
		w.recordJobEnd(w.jobs[id])
	}
}

// TestRevokeMakesRunningJobsUnwanted: each running job that matches becomes unwanted, once.
func TestRevokeMakesRunningJobsUnwanted(t *testing.T) {
	core := broker.New(broker.Config{})
	s, w := core.AddSubmitter(), core.AddWorker()
	core.Join(0, w, &broker.JoinRequest{Type: []byte("t"), Prefetch: 3, WantsNotices: true})
	for _, id := range []string{"r1", "r2", "x3", "r4"} {
		core.Submit(0, s, &broker.Submission{ID: []byte(id), Type: []byte("t"), Body: []byte("1")})
	}
	count := func(state string) int {
		n, _ := core.CountJobs(0, 0, &broker.JobFilter{State: state})
		return n
	}
	if _, n, _ := core.RevokeJobs(0, 0, math.MaxInt, &broker.JobFilter{ID: "x", State: "queued"}); n != 0 {
		t.Errorf("%d jobs are cancelled that are not queued", n)
	}
	fx, n, next := core.RevokeJobs(0, 0, math.MaxInt, &broker.JobFilter{ID: "r", State: "running"})
	if n != 2 || next != -1 || count("running") != 3 || count("queued") != 1 {
		t.Errorf("%d jobs are cancelled, %d run, %d wait, next is %d; want 2, 3, 1, -1", n, count("running"), count("queued"), next)
	}
	ops := map[broker.Op]int{}
	for _, e := range fx {
		ops[e.Op]++
	}
	if ops[broker.OpCancel] != 2 || ops[broker.OpEnd] != 2 {
		t.Errorf("told are %v", ops)
	}
	if _, n, _ := core.RevokeJobs(0, 0, math.MaxInt, &broker.JobFilter{ID: "r", State: "running"}); n != 0 {
		t.Errorf("%d jobs are cancelled twice", n)
	}
	core.Respond(0, w, []byte("r1"), []byte("1"), false)
	core.Respond(0, w, []byte("r2"), []byte("1"), false)
	if l := core.Totals(); l.Cancelled != 2 || l.Answered != 0 || l.Running != 2 {
		t.Errorf("the ledger is %+v, want 2 cancelled and 2 running", l)
	}
}

// TestContentIsBodyOrAnswer: Content returns the body and headers of a job, and the answer of a
// kept outcome.
func TestContentIsBodyOrAnswer(t *testing.T) {
	core := broker.New(broker.Config{})
	s, w := core.AddSubmitter(), core.AddWorker()
	big := bytes.Repeat([]byte("7"), 100_000)
	for id, body := range map[string][]byte{"small": []byte(`{"a":1}`), "big": big} {
		core.Submit(0, s, &broker.Submission{ID: []byte(id), Type: []byte("t"), Body: body, Headers: []byte(`{"h":1}`), Keep: time.Hour})
		if b, h := core.JobContent([]byte(id)); !bytes.Equal(b, body) || string(h) != `{"h":1}` {
			t.Errorf("%s has body %.20q and headers %q", id, b, h)
		}
	}
	core.Join(0, w, &broker.JoinRequest{Type: []byte("t"), Prefetch: 2})
	core.Respond(0, w, []byte("small"), []byte(`"done"`), false)
	core.Fail(0, w, &broker.Failure{ID: []byte("big"), Reason: "no such number", NoRetry: true})
	if b, h := core.JobContent([]byte("small")); string(b) != `"done"` || h != nil {
		t.Errorf("the outcome has body %q and headers %q", b, h)
	}
	if b, _ := core.JobContent([]byte("big")); b != nil {
		t.Errorf("a failed job's outcome has body %q", b)
	}
	if x, _ := core.Explain(0, []byte("big")); x.EndKind != broker.EndFailed || x.Reason.Text != "no such number" {
		t.Errorf("a failed job's outcome is %v, %q", x.EndKind, x.Reason.Text)
	}
	if b, _ := core.JobContent([]byte("nobody")); b != nil {
		t.Errorf("no job has body %q", b)
	}
}
