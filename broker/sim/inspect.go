package sim

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"gloom/broker"
)

// comparePeers compares everything that can be read about connections.
func (r *runner) comparePeers() error {
	o, b := r.oracle, r.driver.core
	workerList, next := b.Workers(o.now, nil, 0, 1000)
	listedSubmitters, _ := b.Submitters(nil, 0, 1000)
	if next != -1 || len(workerList) != o.connectedCount(workers) || len(listedSubmitters) != o.connectedCount(submitters) {
		return fmt.Errorf("%d workers and %d submitters are listed, expected %d and %d", len(workerList), len(listedSubmitters), o.connectedCount(workers), o.connectedCount(submitters))
	}
	for _, got := range workerList {
		w := o.peer(r.driver.numbers[got.Peer])
		if w == nil || w.kind != workers {
			return fmt.Errorf("an unknown worker is listed: %+v", got)
		}
		want := got
		want.Type = nil
		if w.typ != "" {
			want.Type = []byte(w.typ)
		}
		want.Room, want.JobsOut, want.Overdue, want.HasLeft, want.IsSilent = w.room, len(w.out), w.overdue(), w.left, w.credit <= 0
		if len(w.out) <= 16 {
			want.Jobs = nil
			for _, run := range w.out {
				want.Jobs = append(want.Jobs, []byte(run.id))
			}
			slices.SortFunc(want.Jobs, bytes.Compare)
			slices.SortFunc(got.Jobs, bytes.Compare)
		}
		if err := checkEqual(fmt.Sprintf("worker p%d", w.number), want, got); err != nil {
			return err
		}
	}
	for _, got := range listedSubmitters {
		number, want := r.driver.numbers[got.Peer], got
		want.Jobs, want.Bytes = total(o.jobs, ownedBy(number))
		if !o.hasKind(number, submitters) {
			return fmt.Errorf("an unknown submitter is listed: %+v", got)
		}
		if err := checkEqual(fmt.Sprintf("submitter p%d", number), want, got); err != nil {
			return err
		}
	}
	return nil
}

// checkEqual returns an error if the core's account of something differs from the expected one.
func checkEqual(name string, want, got any) error {
	if reflect.DeepEqual(want, got) {
		return nil
	}
	return fmt.Errorf("%s differs:\n  expected%s\n  got     %s", name, nonZero(want), nonZero(got))
}

func namesOf(list []string) (names [][]byte) {
	for _, name := range list {
		names = append(names, []byte(name))
	}
	return names
}

// compareJob compares the readable facts about the job with an id. It adopts some facts from the
// core and does not compare them: why a job waits, except for workers, and how it ended.
func (r *runner) compareJob(id string) error {
	o, d := r.oracle, r.driver
	got, found := d.core.Explain(o.now, []byte(id))
	j := o.jobsByID[id]
	if found != (j != nil) {
		return fmt.Errorf("job %q: found %v, expected %v", id, found, j != nil)
	}
	if j == nil {
		return nil
	}
	want := got
	want.ID, want.Type, want.State, want.Priority, want.KeepTime = []byte(j.id), []byte(j.typ), string(j.state), j.priority, j.keep
	want.Attempts, want.Retries, want.Bytes, want.Releases = j.attempts, j.retries, len(j.body), j.releases
	want.Age, want.TimeInState, want.DueIn, want.ExpiresIn, want.DelayLeft = time.Duration(o.now-j.submittedAt), time.Duration(o.now-j.stateSince), 0, 0, 0
	want.IsDetached, want.IsUnwanted, want.Submitter, want.Worker, want.Broker = j.detach, false, d.peers[j.owner], 0, ""
	if due, set := j.due(); set {
		want.DueIn = time.Duration(max(0, due-o.now))
	}
	if j.expires != 0 && j.state != ended {
		want.ExpiresIn = time.Duration(max(1, j.expires-o.now))
	}
	var p broker.QueuePosition
	for d.core.QueuePosition([]byte(id), &p) {
	}
	exact, jobsAhead := j.state == queued, 0
	switch j.state {
	case ended:
		want.Bytes = j.outcomeBytes
	case running:
		want.Worker, want.IsUnwanted = d.peers[j.worker], j.unwanted()
		if w := o.peer(j.worker); w.kind == borrowers {
			want.Broker = fmt.Sprint(w.number)
		}
	case delayed:
		want.DelayLeft = time.Duration(j.until - o.now)
	case queued:
		if got.Hold >= broker.HeldForWorker {
			want.Hold = o.holdForWorkers(j.typ)
		}
		jobsAhead, _ = total(o.jobs, func(k *oracleJob) bool { return k.state == queued && k.typ == j.typ && k.before(j) })
	}
	if j.state != ended {
		want.Groups = namesOf(j.groups)
	}
	// The place is compared only if neither rules of groups nor turns change the order.
	if changes := len(o.rules) > 0 || o.types[j.typ].fair; !changes && (exact != (got.State == "queued" && p.Exact()) || jobsAhead != p.Ahead) {
		return fmt.Errorf("job %q has %d jobs ahead, got %d, exact %v", id, jobsAhead, p.Ahead, p.Exact())
	}
	return checkEqual("job "+id, want, got)
}

// holdForWorkers returns what a job waits for if only the lack of a worker holds it back.
func (o *oracle) holdForWorkers(typ string) broker.Hold {
	hold, alone, active := broker.HeldForWorker, 0, o.active(typ)
	for _, w := range o.peers {
		if w.kind == workers && w.joined && w.serves(typ) {
			switch {
			case w.left:
				hold = max(hold, broker.HeldByLeftWorkers)
				continue
			case active == 0:
				return broker.HeldByAwayWorkers
			}
			if w.typ == typ {
				alone++
			}
			hold = broker.HeldByBusyWorkers
		}
	}
	if hold == broker.HeldByBusyWorkers && active < alone {
		return broker.HeldByFewWorkers
	}
	return hold
}

// compareLetters compares the dead letters of every type.
func (r *runner) compareLetters() error {
	o := r.oracle
	for _, name := range o.names {
		want, got := o.lettersOf(name), r.driver.letters(name)
		if slices.Reverse(got); len(want) != len(got) {
			return fmt.Errorf("type %q has %d dead letters, expected %d", name, len(got), len(want))
		}
		for i, l := range want {
			letter := *got[i]
			if letter.Reason == (broker.Reason{}) || letter.Reason.Text != l.reason {
				return fmt.Errorf("the dead letter of %q has reason %+v, expected %q", l.id, letter.Reason, l.reason)
			}
			want := letter
			want.ID, want.Type, want.Body, want.Headers, want.Groups = []byte(l.id), []byte(l.typ), l.body, l.headers, namesOf(l.groups)
			want.Priority, want.Retries, want.Timeout, want.Backoff = l.priority, int32(l.retries), l.timeout, l.backoff
			want.Attempts, want.SubmittedAt, want.FailedAt, want.Number = l.attempts, l.submittedAt, l.failed, l.number
			if err := checkEqual("dead letter "+l.id, want, letter); err != nil {
				return err
			}
		}
	}
	return nil
}

// walk is a listing with commands between its pieces. Items that exist during the whole
// walk are listed exactly once, and only items that exist are listed.
type walk struct {
	name  string
	exist func() []any                                  // all items, as the oracle has them
	page  func(from, limit int) (items []any, next int) // the oracle's items that the core lists

	from int
	// lastingKeys holds the items that have existed since the walk began. seenKeys is nil before that.
	lastingKeys, seenKeys map[any]bool
}

func (w *walk) step(limit int) error {
	current := map[any]bool{}
	for _, item := range w.exist() {
		current[item] = true
	}
	if w.seenKeys == nil {
		w.from, w.lastingKeys, w.seenKeys = 0, current, map[any]bool{}
	}
	maps.DeleteFunc(w.lastingKeys, func(item any, _ bool) bool { return !current[item] })
	var items []any
	items, w.from = w.page(w.from, limit)
	for _, item := range items {
		if w.seenKeys[item] || !current[item] {
			return fmt.Errorf("%s %+v is listed although it does not exist, or twice", w.name, item)
		}
		w.seenKeys[item] = true
	}
	if w.from != -1 {
		return nil
	}
	for item := range w.lastingKeys {
		if !w.seenKeys[item] {
			return fmt.Errorf("%s %+v existed throughout and is not listed", w.name, item)
		}
	}
	w.seenKeys = nil
	return nil
}

func (r *runner) compareWalks() error {
	for _, w := range r.walks {
		if err := w.step(1 + r.rng.IntN(4)); err != nil {
			return err
		}
	}
	return nil
}

// matching returns the items of a list that match.
func matching[T any](list []T, matches func(x T) bool) (found []any) {
	for _, x := range list {
		if matches(x) {
			found = append(found, x)
		}
	}
	return found
}

// listings returns the listings of jobs, workers and the dead letters of a type.
func (r *runner) listings() []*walk {
	o, b := r.oracle, r.driver.core
	return []*walk{
		{name: "job", exist: func() []any {
			return matching(o.jobs, func(j *oracleJob) bool { return j.state != running || !j.unwanted() })
		}, page: func(from, limit int) (found []any, next int) {
			next = b.Jobs(o.now, from, limit, &broker.JobFilter{OnlyWanted: true}, func(info *broker.JobInfo) {
				found = append(found, o.jobsByID[string(info.ID)])
			})
			return found, next
		}},
		{name: "worker", exist: func() []any {
			return matching(o.peers, func(p *oraclePeer) bool { return p.kind == workers })
		}, page: func(from, limit int) (found []any, next int) {
			list, next := b.Workers(o.now, nil, from, limit)
			for _, info := range list {
				found = append(found, o.peer(r.driver.numbers[info.Peer]))
			}
			return found, next
		}},
		{name: "dead letter", exist: func() []any {
			return matching(o.letters, func(l *letter) bool { return l.typ == "a" })
		}, page: func(from, limit int) (found []any, next int) {
			list, next := b.DeadLetters(o.now, []byte("a"), from, limit, nil)
			for _, info := range list {
				letters := matching(o.letters, func(l *letter) bool { return l.number == info.Number && l.id == string(info.ID) })
				found = append(found, append(letters, nil)[0])
			}
			return found, next
		}},
	}
}
