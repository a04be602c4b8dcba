package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"gloom/broker"
)

// comparePeers compares everything that can be read about connections.
func (r *runner) comparePeers() error {
	o, b := r.oracle, r.driver.core
	workers, next := b.Workers(o.now, nil, 0, 1000)
	if next != -1 {
		return fmt.Errorf("workers are listed only up to %d", next)
	}
	submitters, _ := b.Submitters(nil, 0, 1000)
	if s, w := b.Peers(); s != len(submitters) || w != len(workers) {
		return fmt.Errorf("%d submitters and %d workers are counted, but %d and %d are listed", s, w, len(submitters), len(workers))
	}
	connected := 0
	for _, p := range o.peers {
		if !p.borrows && !p.lends {
			connected++
		}
	}
	if len(workers)+len(submitters) != connected {
		return fmt.Errorf("%d workers and %d submitters are listed, but %d in all are expected", len(workers), len(submitters), connected)
	}
	for _, x := range workers {
		w := o.peer(r.driver.numbers[x.Peer], true)
		if w == nil {
			return fmt.Errorf("an unknown worker is listed: %+v", x)
		}
		typ := w.typ
		if w.types != nil {
			typ = ""
		}
		if string(x.Type) != typ || x.Room != w.room || x.Out != len(w.out) || x.Overdue != w.overdue() || x.HasLeft != w.left {
			return fmt.Errorf("worker p%d differs: expected %+v, got %+v", w.number, w, x)
		}
		var got, want []string
		for _, id := range x.Jobs {
			got = append(got, string(id))
		}
		for _, run := range w.out {
			want = append(want, run.id)
		}
		slices.Sort(got)
		slices.Sort(want)
		if len(want) <= 16 && !slices.Equal(got, want) {
			return fmt.Errorf("worker p%d has out %q, expected %q", w.number, got, want)
		}
	}
	for _, x := range submitters {
		number := r.driver.numbers[x.Peer]
		jobs, bytes := total(o.jobs, ownedBy(number))
		if o.peer(number, false) == nil || x.Jobs != jobs || x.Bytes != bytes {
			return fmt.Errorf("submitter p%d differs: expected %d jobs and %d bytes, got %+v", number, jobs, bytes, x)
		}
	}
	return nil
}

// compareJob compares everything that can be read about the job with an id.
func (r *runner) compareJob(id string) error {
	o := r.oracle
	x, found := r.driver.core.Explain(o.now, []byte(id))
	j := o.held[id]
	if found != (j != nil) {
		return fmt.Errorf("job %q: found %v, expected %v", id, found, j != nil)
	}
	if j == nil {
		return nil
	}
	type view struct {
		id, typ, state            string
		priority                  int64
		attempts, retries, bytes  int
		releases                  int
		age, in, due, keep        time.Duration
		detached, unwanted, exact bool
		submitter, worker, ahead  int
	}
	want := view{
		id: j.id, typ: j.typ, state: string(j.state), priority: j.priority,
		attempts: j.attempts, retries: j.retries, bytes: len(j.body), releases: j.releases, keep: j.keep,
		age: time.Duration(o.now - j.at), in: time.Duration(o.now - j.since), detached: j.detach, submitter: j.owner,
	}
	if due, set := j.due(); set {
		want.due = time.Duration(max(0, due-o.now))
	}
	switch {
	case j.state == ended:
		want.bytes = j.length
	case j.state == running:
		want.worker, want.unwanted = j.worker, j.unwanted()
	case j.state == queued:
		want.exact = true
		for _, other := range o.jobs {
			if other.state == queued && other.typ == j.typ && other.before(j) {
				want.ahead++
			}
		}
	}
	var p broker.QueuePosition
	for r.driver.core.QueuePosition([]byte(id), &p) {
	}
	// The place is compared only if neither rules of groups nor turns change the order.
	if about := len(o.rules) > 0 || o.types[j.typ].fair; about {
		want.exact, want.ahead = p.Exact() && j.state == queued, p.Ahead
	}
	got := view{
		string(x.ID), string(x.Type), x.State, x.Priority, x.Attempts, x.Retries, x.Bytes, x.Releases,
		x.Age, x.InState, x.Due, x.Keep, x.Detached, x.Unwanted, x.State == "queued" && p.Exact(), r.driver.numbers[x.Submitter], r.driver.numbers[x.Worker], p.Ahead,
	}
	if want != got {
		return fmt.Errorf("job %q differs:\n  expected %+v\n  got      %+v", id, want, got)
	}
	return nil
}

// compareLetters compares the dead letters of every type.
func (r *runner) compareLetters() error {
	o, b := r.oracle, r.driver.core
	for _, name := range o.names {
		want := o.types[name].letters
		got := r.driver.letters(name)
		slices.Reverse(got)
		ok := len(want) == len(got)
		for i := 0; ok && i < len(want); i++ {
			w, g := want[i], got[i]
			ok = w.id == string(g.ID) && w.typ == string(g.Type) && bytes.Equal(w.body, g.Body) && w.priority == g.Priority &&
				w.attempts == g.Attempts && w.at == g.Submitted && w.failed == g.Failed && g.Reason != (broker.Reason{}) && w.reason == g.Reason.Text &&
				w.retries == int(g.Retries) && w.timeout == g.Timeout && w.backoff == g.Backoff && bytes.Equal(w.headers, g.Headers) && slices.EqualFunc(w.groups, g.Groups, func(w string, g []byte) bool { return w == string(g) })
		}
		if !ok {
			return fmt.Errorf("dead letters of type %q differ:\n  expected %s\n  got      %s", name, letterNames(want), coreLetters(got))
		}
	}
	n, size := b.DeadCount()
	if n != len(o.letters) || size != o.letterBytes() || size > max(0, o.cfg.DeadBytes) {
		return fmt.Errorf("%d dead letters of %d bytes are kept, expected %d of %d, limit %d", n, size, len(o.letters), o.letterBytes(), o.cfg.DeadBytes)
	}
	return nil
}

func letterNames(ls []*letter) (s string) {
	for _, l := range ls {
		s += fmt.Sprintf("[%s failed %v after %d: %s]", l.id, time.Duration(l.failed), l.attempts, l.reason)
	}
	return s
}

func coreLetters(ls []*broker.DeadLetter) (s string) {
	for _, l := range ls {
		s += fmt.Sprintf("[%s failed %v after %d: %s]", l.ID, time.Duration(l.Failed), l.Attempts, l.Reason.Text)
	}
	return s
}

// walk is a listing with commands between its pieces. Items that exist during the whole
// walk are listed exactly once.
type walk struct {
	name string
	page func(from, limit int) (keys []string, next int)

	from int
	// lasting holds the items that have existed since the walk began; it is nil before that.
	lasting, seen map[string]bool
}

// items returns all items that exist now.
func (w *walk) items() map[string]bool {
	items := map[string]bool{}
	for from := 0; from != -1; {
		var keys []string
		keys, from = w.page(from, 1000)
		for _, key := range keys {
			items[key] = true
		}
	}
	return items
}

func (w *walk) step(limit int) error {
	current := w.items()
	if w.lasting == nil {
		w.from, w.lasting, w.seen = 0, current, map[string]bool{}
	}
	maps.DeleteFunc(w.lasting, func(key string, _ bool) bool { return !current[key] })
	var keys []string
	keys, w.from = w.page(w.from, limit)
	for _, key := range keys {
		if w.seen[key] {
			return fmt.Errorf("%s %s is listed twice", w.name, key)
		}
		w.seen[key] = true
	}
	if w.from != -1 {
		return nil
	}
	for key := range w.lasting {
		if !w.seen[key] {
			return fmt.Errorf("%s %s existed throughout and is not listed", w.name, key)
		}
	}
	w.lasting = nil
	return nil
}

func (r *runner) compareWalks() error {
	for _, w := range r.walks {
		if err := w.step(1 + r.inner.IntN(4)); err != nil {
			return err
		}
	}
	return nil
}

// listings returns the listings of jobs, workers and the dead letters of a type.
func (r *runner) listings() []*walk {
	o, b := r.oracle, r.driver.core
	return []*walk{
		{name: "job", page: func(from, limit int) (keys []string, next int) {
			next = b.Jobs(o.now, from, limit, &broker.JobFilter{Wanted: true}, func(x *broker.JobInfo) {
				keys = append(keys, fmt.Sprintf("%s (job %d)", x.ID, o.held[string(x.ID)].arrival))
			})
			return keys, next
		}},
		{name: "worker", page: func(from, limit int) (keys []string, next int) {
			found, next := b.Workers(o.now, nil, from, limit)
			for _, x := range found {
				keys = append(keys, fmt.Sprintf("p%d", r.driver.numbers[x.Peer]))
			}
			return keys, next
		}},
		{name: "dead letter", page: func(from, limit int) (keys []string, next int) {
			found, next := b.DeadLetters(o.now, []byte("a"), from, limit, nil)
			for _, l := range found {
				keys = append(keys, fmt.Sprintf("%s (letter %d)", l.ID, l.Number))
			}
			return keys, next
		}},
	}
}
