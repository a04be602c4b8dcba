package master

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
)

// someWorker adds a worker with a place for two jobs.
func (w *world) someWorker() *worker {
	k := &worker{Worker: job.Worker{ID: w.c.newID(), MaxJobs: 2, URL: "http://there", Names: []string{"*"}}, seen: w.now, runs: map[*record]struct{}{}}
	w.c.workers[k.ID] = k
	return k
}

// TestUnknownName: a worker that does not know a name gets no jobs of it for a
// while, but those of others, whatever the name looks like.
func TestUnknownName(t *testing.T) {
	for _, name := range []string{"some", "so*", "*"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			c := w.c
			k := w.someWorker()
			pushed := &pushes{}
			c.out.push = pushed
			w.step(c, func() { c.linkSlice(1); c.linked = true; c.serve(k) })
			for _, n := range []string{name, "something"} {
				w.step(c, func() {
					c.enqueue(&enqueueing{jobs: []*New{{Attributes: job.Attributes{Name: n, Timeout: 30}}}, reply: func([]job.ID, bool, error) {}})
				})
			}
			w.st.flush()
			goOn := func() {
				w.br.some(1 << 20)
				for w.br.match() {
					w.br.some(1 << 20)
					w.st.flush()
				}
			}
			goOn()
			if !slices.Equal(pushed.names, []string{name, "something"}) {
				t.Fatalf("pushed %q", pushed.names)
			}
			pushed.answered[0](Answer{Kind: UnknownName})
			w.st.flush()
			goOn()
			w.pass(refusedName / 2)
			goOn()
			if n := len(pushed.names); n != 2 {
				t.Fatalf("pushed %q", pushed.names)
			}
			for _, e := range k.told.except {
				if strings.Contains(e, "*") {
					t.Errorf("all of %s are kept away", e)
				}
			}
			w.pass(refusedName)
			goOn()
			if n := len(pushed.names); n != 3 || pushed.names[2] != name {
				t.Fatalf("pushed %q", pushed.names)
			}
		})
	}
}

// pushes keeps what is pushed.
type pushes struct {
	names    []string
	answered []func(Answer)
}

func (p *pushes) Push(_ *job.Worker, h *job.Handout, answered func(Answer)) {
	p.names, p.answered = append(p.names, h.Name), append(p.answered, answered)
}

// TestCancelsLapse: a worker that never asks which runs to give up costs nothing
// when their time is over.
func TestCancelsLapse(t *testing.T) {
	w := newWorld(t, 1)
	k := w.someWorker()
	k.cancels = map[job.ID]int64{w.c.newID(): w.now + ms(time.Second), w.c.newID(): w.now + ms(time.Hour)}
	w.pass(time.Minute)
	if n := len(k.cancels); n != 1 {
		t.Fatalf("%d cancelled runs are noted, the time of one is over", n)
	}
}
