package broker

import (
	"bytes"
	"strings"
	"time"
	"unsafe"
)

const (
	// mostRuns bounds the remembered runs of all jobs together. The oldest go first.
	mostRuns = 4096
	// longWhy bounds what is remembered of a reason, in bytes.
	longWhy = 256
)

// RunInfo is a run that did not end its job.
type RunInfo struct {
	Run    int // from 1
	Worker Peer
	// Broker is the broker to which it was lent, "" for none. Lost: that broker was lost.
	Broker string
	Lost   bool
	// Ago is how long ago it ended, Took how long it took.
	Ago, Took time.Duration
	Reason    Reason
}

// pastRun is a run of the job that had record job and number seq.
type pastRun struct {
	job, seq     uint32
	run          int
	worker       Peer
	broker       string
	lost, left   bool // left: its worker was lost
	began, ended int64
	reason       Reason
}

// pastRuns is a ring of the latest runs.
type pastRuns struct {
	all  []pastRun
	next int   // index of the next one
	text int64 // bytes of all reasons
}

func (p *pastRuns) bytes() int64 { return int64(cap(p.all))*int64(unsafe.Sizeof(pastRun{})) + p.text }

// remember notes the run of job r, which has stopped and was not its last one.
func (b *Broker) remember(r uint32, j *job, reason Reason, left bool) {
	p := &b.runs
	if len(p.all) < mostRuns {
		p.all = append(p.all, pastRun{})
	}
	x := &p.all[p.next]
	p.next = (p.next + 1) % mostRuns
	w := b.peers[j.worker].wrk
	if text := reason.Text; len(text) > longWhy {
		reason.Text = strings.ToValidUTF8(text[:longWhy], "") + "…"
	}
	p.text += int64(len(reason.Text) - len(x.reason.Text))
	*x = pastRun{
		job: r, seq: j.seq, run: int(j.attempts), worker: w.id, broker: w.name, lost: w.borrows && w.kind == nil, left: left,
		began: j.since, ended: b.now, reason: reason,
	}
}

// Runs returns the remembered runs of the job with this id that did not end it, the oldest
// first.
func (b *Broker) Runs(now int64, id []byte) (found []RunInfo) {
	b.now = max(b.now, now)
	r := b.find(b.index.Hash(id), id)
	if r == 0 {
		return nil
	}
	seq, p := b.jobs.Get(r).seq, &b.runs
	for i := range p.all {
		if x := &p.all[(p.next+i)%len(p.all)]; x.job == r && x.seq == seq {
			found = append(found, RunInfo{x.run, x.worker, x.broker, x.lost, b.Since(x.ended), time.Duration(x.ended - x.began), x.reason})
		}
	}
	return found
}

// Losses is a job at which workers were lost.
type Losses struct {
	Type, ID []byte
	Workers  int
}

// Losses returns the jobs that lost at least so many workers lately, as far as their runs
// are remembered.
func (b *Broker) Losses(now int64, lately time.Duration, least int) (found []Losses) {
	b.now = max(b.now, now)
	type of struct{ job, seq uint32 }
	count := map[of]int{}
	for i := range b.runs.all {
		if x := &b.runs.all[i]; x.left && b.Since(x.ended) <= lately {
			count[of{x.job, x.seq}]++
		}
	}
	for x, n := range count {
		if n < least || !b.jobs.Has(x.job) {
			continue
		}
		if j := b.jobs.Get(x.job); j.seq == x.seq && j.state != stFree && j.state <= stRunning {
			found = append(found, Losses{bytes.Clone(b.holder(j).kind.name), bytes.Clone(b.id(j)), n})
		}
	}
	return found
}
