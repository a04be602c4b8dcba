package broker_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gloom/broker"
)

// crowdedCore returns a core with one queued job of each of n submitters, all of one type, with
// increasing priorities.
func crowdedCore(n int, priority func(i int) int64) *broker.Broker {
	core := broker.New(broker.Config{})
	for i := range n {
		core.Submit(int64(i), core.AddSubmitter(), &broker.Submission{
			ID: fmt.Append(nil, i), Type: []byte("t"), Body: []byte("1"), Priority: priority(i), NoAck: true,
		})
	}
	return core
}

// TestSnapshotsAreTakenInPieces: snapshots of a type with very many submitters are taken in pieces,
// none of which delays others for long.
func TestSnapshotsAreTakenInPieces(t *testing.T) {
	if broker.InvariantsEnabled {
		t.Skip("a sweep of 50,000 jobs after each of 50,000 commands takes an hour; the other build runs this")
	}
	const n = 50_000
	r := rand.New(rand.NewPCG(1, 2))
	priorities := make([]int64, n)
	core := crowdedCore(n, func(i int) int64 {
		priorities[i] = r.Int64N(50)
		return priorities[i]
	})
	longest := time.Duration(0)
	timed := func(fn func()) {
		begin := time.Now()
		fn()
		longest = max(longest, time.Since(begin))
	}
	var survey broker.Survey
	pieces := 1
	for more := true; more; pieces++ {
		timed(func() { more = core.Survey(2*n, &survey) })
	}
	info, _, _ := core.Type([]byte("t"))
	survey.Complete(&info)
	if got := info.OldestAge; got != 2*n {
		t.Errorf("the oldest job is %d old, want %d", got, 2*n)
	}
	if pieces < n/1024 {
		t.Errorf("%d jobs were looked at in %d pieces", n, pieces)
	}
	listedPeers, listPieces := 0, 1
	for from := 0; from >= 0; listPieces++ {
		timed(func() {
			var found []broker.SubmitterInfo
			found, from = core.Submitters(nil, from, n)
			listedPeers += len(found)
		})
	}
	if listedPeers != n || listPieces < n/1024 {
		t.Errorf("%d submitters of %d were listed, in %d pieces", listedPeers, n, listPieces)
	}
	for range 20 {
		timed(func() {
			if _, ok := core.Explain(2*n, fmt.Append(nil, r.IntN(n))); !ok {
				t.Error("a job is not found")
			}
		})
	}
	// Nearly all other jobs come before the oldest job of the lowest priority.
	for _, c := range []struct{ id, jobsAhead int }{{slices.Index(priorities, 49), 0}, {slices.Index(priorities, 0), 10_000}} {
		var p broker.QueuePosition
		for more := true; more; {
			timed(func() { more = core.QueuePosition(fmt.Append(nil, c.id), &p) })
		}
		if p.Ahead != c.jobsAhead || p.Exact() != (c.jobsAhead < 10_000) {
			t.Errorf("%d jobs are ahead (exact: %v), want %d", p.Ahead, p.Exact(), c.jobsAhead)
		}
	}
	t.Logf("the longest piece took %v", longest)
}

// TestQueuePositionIsCountedInPieces: a place in a long line is counted in pieces. The count is not
// exact if the job at which a piece stopped is gone when the next piece begins.
func TestQueuePositionIsCountedInPieces(t *testing.T) {
	n := 5000
	if broker.InvariantsEnabled {
		n = 2500 // more than one piece counts, and more than the test removes
	}
	for _, c := range []struct {
		name       string
		priorities int64
		endedJobs  int // how many of the first jobs end after the first piece
		exact      bool
	}{
		{"one priority", 1, 0, true},
		{"five priorities", 5, 0, true},
		{"some that were counted go", 1, 1000, true},
		{"all that were counted go", 1, 2000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			core := broker.New(broker.Config{})
			s := core.AddSubmitter()
			for i := range n {
				core.Submit(int64(i), s, &broker.Submission{
					ID: fmt.Append(nil, i), Type: []byte("t"), Body: []byte("1"), Priority: -int64(i) % c.priorities, NoAck: true,
				})
			}
			var p broker.QueuePosition
			lastID, pieces := fmt.Append(nil, n-1), 1
			for ; core.QueuePosition(lastID, &p); pieces++ {
				for i := 0; pieces == 1 && i < c.endedJobs; i++ {
					core.Cancel(int64(n), s, fmt.Append(nil, i))
				}
			}
			if p.Exact() != c.exact || c.exact && (p.Ahead != n-1 || pieces < n/1100) || p.Ahead >= n {
				t.Errorf("%d are ahead (exact: %v), found in %d pieces; want %d (exact: %v)", p.Ahead, p.Exact(), pieces, n-1, c.exact)
			}
		})
	}
}

// TestQueuePositionSkipsHeldJobs: jobs that another group holds back do not count as ahead of a job. Nor
// do, in a fair type, jobs that wait for other turns. In both cases the place is not exact.
func TestQueuePositionSkipsHeldJobs(t *testing.T) {
	for _, c := range []struct {
		name      string
		fair      bool
		group     string // the job's group; 100 older jobs are alternately in the groups a and held
		prio      int64  // of these
		jobsAhead int
		exact     bool
	}{
		{"no group", false, "", 0, 50, false},
		{"a group that is held back", false, "held", 0, 100, false},
		{"those are less important", false, "", -1, 0, true},
		{"a turn of its own", true, "b", 0, 0, false},
		{"a turn that others have, too", true, "a", 0, 50, false},
		{"the others are more important", true, "b", 1, 50, false},
		{"turns of what is less important", true, "b", -1, 0, true},
	} {
		core := broker.New(broker.Config{})
		if _, _, err := core.SetRule(0, []byte("held"), broker.Rule{Concurrency: 0}); err != nil {
			t.Fatal(err)
		}
		if _, err := core.SetFair(0, []byte("t"), c.fair); err != nil {
			t.Fatal(err)
		}
		submit := func(id int, prio int64, groups ...string) {
			core.Submit(int64(id), core.AddSubmitter(), &broker.Submission{
				ID: fmt.Append(nil, id), Type: []byte("t"), Body: []byte("1"), Priority: prio, Groups: bytesOfNames(groups...), NoAck: true,
			})
		}
		for i := range 100 {
			submit(i, c.prio, []string{"a", "held"}[i%2])
		}
		if c.group == "" {
			submit(100, 0)
		} else {
			submit(100, 0, c.group)
		}
		var p broker.QueuePosition
		for core.QueuePosition([]byte("100"), &p) {
		}
		if p.Ahead != c.jobsAhead || p.Exact() != c.exact {
			t.Errorf("%s: %d are ahead (exact: %v), want %d (exact: %v)", c.name, p.Ahead, p.Exact(), c.jobsAhead, c.exact)
		}
	}
}

// TestFirstTypesAreKept: the first types are never forgotten, and do not count as in use.
func TestFirstTypesAreKept(t *testing.T) {
	core := broker.New(broker.Config{MaxUnusedTypes: 3, KeptTypes: 2, MaxTypes: 1})
	s, w := core.AddSubmitter(), core.AddWorker()
	for i := range 10 {
		typ := fmt.Appendf(nil, "t%d", i)
		core.Submit(0, s, &broker.Submission{ID: typ, Type: typ, Body: []byte("1"), NoAck: true})
		core.Join(0, w, &broker.JoinRequest{Type: typ})
		core.Respond(0, w, nil, []byte("1"), false)
		core.RemovePeer(0, w)
		core.RemovePeer(0, s)
		s, w = core.AddSubmitter(), core.AddWorker()
	}
	isKept := map[string]bool{}
	core.Types(0, 100, func(i *broker.TypeInfo, _ *broker.TypeStats) {
		isKept[string(i.Name)] = i.IsKept
		if i.Submitted != 1 || i.Answered != 1 {
			t.Errorf("%s: %+v", i.Name, i.Ledger)
		}
	})
	if len(isKept) != 3 || !isKept["t0"] || !isKept["t1"] || isKept["t9"] {
		t.Errorf("known are %v, want t0 and t1, kept, and t9", isKept)
	}
}

// TestTypeOfHidesOthersJobs: a submitter learns nothing about other submitters' jobs.
func TestTypeOfHidesOthersJobs(t *testing.T) {
	core := broker.New(broker.Config{MaxUnusedTypes: 10})
	submitter, other := core.AddSubmitter(), core.AddSubmitter()
	for id, detach := range map[string]bool{"bound": false, "detached": true} {
		core.Submit(0, submitter, &broker.Submission{ID: []byte(id), Type: []byte("t"), Body: []byte("1"), Detach: detach})
	}
	for _, c := range []struct {
		peer broker.Peer
		id   string
		want string
	}{{submitter, "bound", "t"}, {submitter, "detached", "t"}, {other, "detached", "t"}, {other, "bound", ""}, {other, "nowhere", ""}} {
		if got := string(core.TypeOf(c.peer, []byte(c.id))); got != c.want {
			t.Errorf("%q is of type %q to peer %d, want %q", c.id, got, c.peer, c.want)
		}
	}
}

// TestGroupsOfTypesMatchListing: the counts of groups, by type, agree with a listing of the jobs, whoever
// submitted these and whatever other groups they are in.
func TestGroupsOfTypesMatchListing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	n, submitters := 6000, 30
	if broker.InvariantsEnabled {
		n = 200
	}
	core := broker.New(broker.Config{})
	for pattern, rule := range map[string]broker.Rule{"g1*": {Concurrency: 0}, "g2": {Concurrency: 1}, "h*": {Concurrency: 3}} {
		if _, _, err := core.SetRule(0, []byte(pattern), rule); err != nil {
			t.Fatal(err)
		}
	}
	var peers []broker.Peer
	for range submitters {
		peers = append(peers, core.AddSubmitter())
	}
	for i := range n {
		var groups [][]byte
		for range r.IntN(4) {
			if g := fmt.Appendf(nil, "%c%d", "gh"[r.IntN(2)], r.IntN(n/4)); !slices.ContainsFunc(groups, func(x []byte) bool { return string(x) == string(g) }) {
				groups = append(groups, g)
			}
		}
		core.Submit(int64(i), peers[r.IntN(submitters)], &broker.Submission{
			ID: fmt.Append(nil, i), Type: fmt.Append(nil, "t", r.IntN(3)), Body: []byte("1"), Groups: groups, NoAck: true,
			Delay: time.Duration(r.IntN(2)) * time.Hour,
		})
	}
	for i := range n / 10 {
		core.Join(int64(n), core.AddWorker(), &broker.JoinRequest{Type: fmt.Append(nil, "t", i%3)})
	}
	// The running jobs of lost submitters continue, their waiting jobs are abandoned.
	for _, p := range peers[:3] {
		core.RemovePeer(int64(n), p)
	}
	rules := map[string]string{}
	for _, g := range core.Groups(n) {
		rules[string(g.Name)] = string(g.Rule)
	}
	types := [][]byte{[]byte("t0"), []byte("t1"), []byte("t2"), []byte("none")}
	want := map[string]map[string]broker.GroupInfo{}
	for _, typ := range types {
		of := map[string]broker.GroupInfo{}
		want[string(typ)] = of
		for from := 0; from >= 0; {
			from = core.Jobs(int64(n), from, n, &broker.JobFilter{Type: typ}, func(j *broker.JobInfo) {
				for _, g := range j.Groups {
					x := of[string(g)]
					x.Name = g
					if j.State == "running" {
						x.Running++
					} else if x.Waiting++; j.HeldBy != nil {
						x.Held++
					}
					of[string(g)] = x
				}
			})
		}
	}
	for _, limit := range []int{1, 7, n} {
		l, pieces := broker.GroupLook{Limit: limit, Types: types}, 1
		for ; core.LookGroups(&l); pieces++ {
		}
		if pieces < n/1024 {
			t.Errorf("the groups of %d jobs are looked at in %d pieces", n, pieces)
		}
		for _, typ := range types {
			of := want[string(typ)]
			got := l.Infos(typ)
			if len(got) != min(limit, len(of)) {
				t.Errorf("%s: %d groups are found, want %d of %d", typ, len(got), limit, len(of))
			}
			busy := make([]int, 0, len(of))
			for _, x := range of {
				busy = append(busy, x.Waiting+x.Running)
			}
			slices.Sort(busy)
			slices.Reverse(busy)
			for i, g := range got {
				x := of[string(g.Name)]
				x.Rule = []byte(rules[string(g.Name)])
				if fmt.Sprint(g) != fmt.Sprint(x) || g.Waiting+g.Running != busy[i] {
					t.Errorf("%s: number %d is %q with %d waiting, %d running, %d held, rule %q; its jobs are %d, %d, %d, %q, and %d are due here",
						typ, i, g.Name, g.Waiting, g.Running, g.Held, g.Rule, x.Waiting, x.Running, x.Held, x.Rule, busy[i])
				}
			}
		}
	}
}
