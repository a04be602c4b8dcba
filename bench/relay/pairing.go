package relay

import "encoding/binary"

// peer is a connection to the relay: a submitter or a worker.
type peer struct {
	isWorker bool
	sender   sender // nil after the connection has ended
	job      *peer  // for a worker, the submitter whose job it runs, nil when idle
}

// sender takes frames, which are sent at the end of the round.
type sender interface{ send(f []byte) }

func (p *peer) send(f []byte) {
	if p.sender != nil {
		p.sender.send(f)
	}
}

type queuedJob struct {
	from  *peer
	frame []byte
}

// pairing gives jobs to idle workers, the oldest job to the worker that has been idle longest. A
// pairing is used on one thread, so it needs no lock.
type pairing struct {
	idle        fifo[*peer]
	jobs        fifo[queuedJob]
	frameMemory []byte
}

// consume passes on each complete frame of in. It returns the length of these frames in bytes, and
// the length of the next frame, or 0 while the next length is not known.
func (m *pairing) consume(p *peer, in []byte) (used, want int) {
	for len(in)-used >= 4 {
		n := 4 + int(binary.BigEndian.Uint32(in[used:]))
		if len(in)-used < n {
			return used, n
		}
		f := in[used : used+n]
		used += n
		if p.isWorker {
			m.handleAnswer(p, f)
		} else {
			m.handleSubmit(p, f)
		}
	}
	return used, 0
}

func (m *pairing) handleSubmit(s *peer, f []byte) {
	s.send(submitAck)
	for m.idle.len() > 0 {
		if w := m.idle.pop(); w.sender != nil {
			w.job = s
			w.send(f)
			return
		}
	}
	m.jobs.push(queuedJob{s, m.copyFrame(f)})
}

func (m *pairing) handleAnswer(w *peer, f []byte) {
	w.send(workerAck)
	if w.job != nil {
		w.job.send(f)
	}
	w.job = nil
	for m.jobs.len() > 0 {
		if q := m.jobs.pop(); q.from.sender != nil {
			w.job = q.from
			w.send(q.frame)
			return
		}
	}
	m.idle.push(w)
}

// copyFrame copies a frame that has to wait; many frames share one slab of memory.
func (m *pairing) copyFrame(f []byte) []byte {
	const slabSize = 64 << 10
	if len(f) > slabSize/4 {
		return append([]byte(nil), f...)
	}
	if cap(m.frameMemory)-len(m.frameMemory) < len(f) {
		m.frameMemory = make([]byte, 0, slabSize)
	}
	from := len(m.frameMemory)
	m.frameMemory = append(m.frameMemory, f...)
	return m.frameMemory[from:len(m.frameMemory):len(m.frameMemory)]
}
