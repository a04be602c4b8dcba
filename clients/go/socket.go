package gloom

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"gloom/wire"
)

// maxUnansweredProgress is how many progress frames may be unanswered on a connection.
const maxUnansweredProgress = 64

// socket is a worker's connection, with the runs out on it.
type socket struct {
	conn
	worker    *Worker
	namesJobs bool      // joined with prefetch: answers carry ids
	queue     chan *Run // has room for the runs that may be out; nil for Take

	// Guarded by mu.
	runs               map[string]*Run // not yet answered, by canonical id
	unansweredProgress int             // progress frames that are not answered
	isLeaving          bool
	hasLeft            bool // no more jobs will come
}

// serveConn serves one connection until it ends and every handler has returned. Its result
// says whether the worker had joined, and why the connection ended.
func (w *Worker) serveConn(addr string) Notice {
	s := &socket{
		conn: conn{conf: w.conf, mu: new(condMutex)}, worker: w,
		namesJobs: w.Prefetch > 0 || w.Take != nil, runs: make(map[string]*Run),
	}
	s.client = s
	if w.Take == nil {
		s.queue = make(chan *Run, max(w.Prefetch, 1))
	}
	err := s.dial(w.leavingCtx, w.baseCtx, addr, func(done func(error)) {
		w.sockets.Store(s, nil)     // first, so that no change by Serve is missed
		s.sendHello(func(error) {}) // a refusal ends the connection
		s.join(func(err error) {    // on the reading goroutine, before any job
			if err == nil {
				w.markJoined()
				w.conf.notify(Notice{Event: EventJoined, Addr: s.addr})
			}
			done(err)
		})
	})
	if err != nil {
		return Notice{Event: EventFailed, Addr: s.addr, Err: err}
	}
	defer context.AfterFunc(w.leavingCtx, s.leave)()
	var wg sync.WaitGroup
	_, handlers := w.poolSize()
	for range handlers {
		wg.Go(s.runHandlers)
	}
	<-s.ended
	wg.Wait()
	return Notice{Event: EventLost, Addr: s.addr, Err: s.lostError().Cause}
}

func (s *socket) onLoss(loss *LostError) {
	s.worker.sockets.Delete(s)
	for _, r := range s.runs {
		r.cancelUnwanted(loss)
	}
	s.runs = nil
	if s.queue != nil {
		close(s.queue)
	}
}

func (s *socket) join(then func(error)) {
	v := s.worker.serving.Load()
	if v.Prefetch == 0 && s.worker.Take != nil {
		s.send(wire.AppendLeave(nil), request{verb: wire.Leave, done: then})
		return
	}
	s.send(wire.AppendJoin(nil, &wire.Request{
		Type: []byte(canonical(s.worker.Type)), Types: canonicalNames(v.Types), Except: canonicalNames(v.Except),
		Prefetch: v.Prefetch, WantCancels: true, WantHeaders: s.worker.Headers,
	}), request{verb: wire.Join, done: then})
}

// rejoin joins again, unless the socket is leaving, which a join would undo. It locks mu.
func (s *socket) rejoin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isLeaving {
		s.join(nil)
	}
}

// leave accepts no more jobs and gives back those that wait for a handler. The socket ends once
// all runs are answered. It locks mu.
func (s *socket) leave() {
	s.mu.Lock()
	s.isLeaving = true
	s.send(wire.AppendLeave(nil), request{verb: wire.Leave, stopsWorker: true})
	s.mu.Unlock()
	for s.namesJobs {
		select {
		case r, waits := <-s.queue:
			if !waits {
				return // the connection is lost
			}
			s.release(r)
		default:
			return
		}
	}
}

func (s *socket) isFinished() bool {
	return s.hasLeft && len(s.runs) == 0 && s.requests.isEmpty()
}

func (s *socket) onEvent(ev *wire.Event) error {
	switch ev.Kind {
	case wire.EventJob:
		return s.onJob(ev)
	case wire.EventCancel:
		if r := s.runs[string(ev.ID)]; r != nil {
			r.cancelUnwanted(ErrCancelled)
		}
	}
	return nil
}

func (s *socket) onJob(ev *wire.Event) error {
	switch {
	case s.hasLeft:
		return &ProtocolError{Reason: "job after the ok of leave"}
	case s.queue != nil && len(s.runs) == cap(s.queue):
		return &ProtocolError{Reason: fmt.Sprintf("the broker sent a job although %d are running, which is all that this worker asked for", len(s.runs))}
	case s.runs[string(ev.ID)] != nil:
		return &ProtocolError{Reason: "job whose id is out already"}
	}
	r := newRun(s, ev)
	s.runs[r.key] = r
	if s.isLeaving && s.namesJobs {
		s.notifications = append(s.notifications, notifyFunc(func() { s.release(r) }))
	} else {
		s.deliverRun(r)
	}
	return nil
}

func (s *socket) deliverRun(r *Run) {
	if s.worker.Take != nil {
		s.notifications = append(s.notifications, r)
	} else {
		s.queue <- r
	}
}

func (s *socket) onReply(r request, refusal *RefusedError) error {
	switch r.verb {
	case wire.Join, wire.Leave:
		if r.stopsWorker { // also if refused: then the socket closes once no run is out
			s.hasLeft = true
		} else if refusal != nil {
			return refusal
		}
	case wire.Progress:
		s.unansweredProgress--
		s.mu.wakeAll()
	default:
		if refusal != nil {
			return s.onRefusedAnswer(r, refusal)
		}
	}
	return nil
}

// runHandlers runs jobs until the socket has ended. If a handler calls runtime.Goexit, the connection
// ends, so that the broker gets the job back.
func (s *socket) runHandlers() {
	defer s.fail(errors.New("handler ended its goroutine"))
	for r := range s.queue {
		var body []byte
		err := context.Cause(r.ctx)
		if err == nil { // otherwise it was cancelled while it waited
			body, err = r.callHandler(s.worker.Handler)
		}
		if s.ctx.Err() == nil { // otherwise the run is lost
			s.answer(r, body, err, request{})
		}
		r.cancel(nil)
	}
}

// answer sends how a run ended, unless it has been answered or the connection is lost. The argument
// onRefusal carries what onRefusedAnswer needs. answer locks mu. It need not wait for room: there
// are at most as many answers as runs.
func (s *socket) answer(r *Run, body []byte, err error, onRefusal request) {
	buf := frameBuffers.Get().(*[]byte)
	defer returnBuffer(buf)
	*buf, onRefusal.verb = r.appendAnswer((*buf)[:0], body, err)
	onRefusal.key, onRefusal.run = r.key, r
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs[r.key] == r {
		delete(s.runs, r.key)
		s.send(*buf, onRefusal)
	}
}

// release gives back a run that has not begun. It locks mu.
func (s *socket) release(r *Run) { s.answer(r, nil, Release(0), request{notStarted: true}) }

// onRefusedAnswer acts on the refusal of an answer, which leaves the run on this socket.
func (s *socket) onRefusedAnswer(r request, refusal *RefusedError) error {
	switch {
	case refusal.Code == ErrInvalidState || refusal.Code == ErrUnknownID: // the run is over anyway
	case r.notStarted: // the broker does not know release, so the job must run
		s.runs[r.key] = r.run
		s.deliverRun(r.run)
	case r.replacesRefused:
		return refusal // closing the connection gives the job back
	default:
		err := fmt.Errorf("answer refused: %s: %s", refusal.Code, refusal.Reason)
		if r.verb == wire.Respond {
			err = Fatal(err)
		}
		s.runs[r.key] = r.run
		s.notifications = append(s.notifications, notifyFunc(func() { s.answer(r.run, nil, err, request{replacesRefused: true}) }))
	}
	return nil
}
