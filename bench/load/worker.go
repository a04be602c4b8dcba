package load

import "strings"

// Worker echoes jobs. Its methods are called by its WorkerSide, on the loop's
// thread.
type Worker struct {
	Index     int
	Type      string // the type that it serves, or the beginning of the names of its types
	ServesAll bool   // it serves all types whose names begin with Type
	Prefetch  int    // jobs that it may have at a time; 0: joins without prefetch

	shard          *shard
	side           WorkerSide
	ready          bool
	disconnected   bool // hung up on purpose
	connections    int  // counts connections, so that old jobs are not answered on new ones
	unackedAnswers int  // answers that the server has not acknowledged
}

// Addr returns the address that the worker connects to.
func (w *Worker) Addr() string {
	addrs := strings.Split(w.shard.cfg.WorkerAddr, ",")
	return addrs[w.Index%len(addrs)]
}

// Body returns the maker of the run's bodies.
func (w *Worker) Body() *Body { return w.shard.body }

// Arrived records when bytes were received. The Data method of every side must
// call it first.
func (w *Worker) Arrived(now int64) { w.shard.now = now }

// Ready records that the server counts the worker as joined.
func (w *Worker) Ready() {
	if !w.ready {
		w.ready = true
		w.shard.readyWorkers++
	}
}

func (w *Worker) state() (index int, ready bool) { return w.Index, w.ready }

func (w *Worker) dial() error {
	w.disconnected = false
	w.connections++
	w.side = w.shard.cfg.Protocol.Worker(w)
	return w.side.Dial(w.shard.loop)
}

// Job handles a job that has arrived: it answers the job at once, or when the work time is over.
func (w *Worker) Job(job Job) {
	w.shard.totals.HandedOut++
	if w.shard.cfg.WorkTime == 0 {
		w.side.Answer(job)
		return
	}
	w.shard.hold(w, job)
}

// CountAnswer counts an answer that the server must acknowledge.
func (w *Worker) CountAnswer() { w.unackedAnswers++ }

// AnswerAcked counts the server's acknowledgement of an answer. It returns false if none was expected.
func (w *Worker) AnswerAcked() bool {
	if w.unackedAnswers == 0 {
		return false
	}
	w.unackedAnswers--
	return true
}

// UnackedAnswers returns the number of answers not yet acknowledged.
func (w *Worker) UnackedAnswers() int { return w.unackedAnswers }

// Misbehaved reports bytes that the protocol does not allow.
func (w *Worker) Misbehaved(format string, args ...any) {
	w.shard.faults.add(Misbehaved, format, args...)
}

// Refused reports an error of the server.
func (w *Worker) Refused(code, reason string) {
	w.shard.faults.add(Refused, "to a worker: %s: %s", code, reason)
}

// Lost reports that the connection is gone.
func (w *Worker) Lost(err error) {
	if w.disconnected {
		return
	}
	w.shard.faults.add(Disconnected, "worker %d: %s", w.Index, lossText(err))
	if w.ready {
		w.ready = false
		w.shard.readyWorkers--
	}
}

func (w *Worker) hangup(abort bool) {
	w.disconnected = true
	w.connections++
	w.unackedAnswers = 0
	if w.ready {
		w.ready = false
		w.shard.readyWorkers--
	}
	w.side.Hangup(abort)
}

// Joined reports whether Ready was called for this connection.
func (w *Worker) Joined() bool { return w.ready }
