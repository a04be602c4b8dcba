package brokers

import (
	"bytes"
	"strconv"

	"gloom/bench/load"
)

// NATS uses request and reply: submitters publish with a reply subject of their own, workers are
// one queue group. Nothing is acknowledged and nothing is queued: a job is sent to a worker at
// once, however busy that worker is. To do the same work as with other servers, a worker takes its
// jobs one at a time and sends each answer before it reads the next job; with prefetch it takes all
// that have arrived and answers them together.
var NATS = load.Protocol{
	Traits:    load.Traits{Acks: load.NoAcks, Prefetch: true},
	Submitter: newNATSSubmitter, Worker: newNATSWorker,
}

func newNATSSubmitter(s *load.Submitter) load.SubmitterSide {
	n := &natsSubmitter{s: s}
	inbox := "reply." + strconv.Itoa(s.Index)
	for _, name := range s.Types() {
		n.publishHeads = append(n.publishHeads, []byte("PUB "+name+" "+inbox+" "+strconv.Itoa(s.Body().Len())+"\r\n"))
	}
	n.serverConn = serverConn{peer: s, greeting: []byte(natsConnect + "SUB " + inbox + " 1\r\nPING\r\n"), handleNext: n.handleLine}
	return n
}

func newNATSWorker(w *load.Worker) load.WorkerSide {
	n := &natsWorker{w: w}
	n.serverConn = serverConn{peer: w, greeting: []byte(natsConnect + "SUB " + w.Type + " workers 1\r\nPING\r\n"), handleNext: n.handleLine}
	return n
}

const natsConnect = `CONNECT {"verbose":false,"pedantic":false,"lang":"go","version":"1","name":"gloom-bench"}` + "\r\n"

// nextLine returns the control line at the start of in, with the payload of a message, and their
// length; used is 0 while they are incomplete.
func nextLine(in []byte) (line, payload []byte, used int) {
	end := bytes.IndexByte(in, '\n')
	if end < 1 {
		return nil, nil, 0
	}
	line, used = in[:end-1], end+1
	if !bytes.HasPrefix(line, []byte("MSG ")) {
		return line, nil, used
	}
	size := 0
	for _, c := range line[bytes.LastIndexByte(line, ' ')+1:] {
		size = size*10 + int(c-'0')
	}
	if len(in)-used < size+2 {
		return nil, nil, 0
	}
	return line, in[used : used+size], used + size + 2
}

// handleControl handles a line that is not a message. It returns false if the line reports an error.
func (l *serverConn) handleControl(line []byte) bool {
	switch {
	case string(line) == "PONG":
		l.peer.Ready()
	case string(line) == "PING":
		l.conn.SetOut(append(l.conn.Out(), "PONG\r\n"...))
	default:
		return bytes.HasPrefix(line, []byte("INFO "))
	}
	return true
}

type natsSubmitter struct {
	serverConn
	s            *load.Submitter
	publishHeads [][]byte
}

func (n *natsSubmitter) Submit(typ int, _ int64, num load.Number) {
	out := append(n.conn.Out(), n.publishHeads[typ]...)
	out = n.s.Body().Append(out, num)
	n.conn.SetOut(append(out, "\r\n"...))
}

func (n *natsSubmitter) handleLine(in []byte) int {
	line, payload, used := nextLine(in)
	switch {
	case used == 0:
	case payload != nil:
		n.s.Answered(nil, payload)
	case !n.handleControl(line):
		n.s.Refused(nil, "nats", string(line))
	}
	return used
}

type natsWorker struct {
	serverConn
	w *load.Worker
}

func (n *natsWorker) Answer(job load.Job) {
	out := append(n.conn.Out(), "PUB "...)
	out = append(out, job.Reply...)
	out = append(out, ' ')
	out = strconv.AppendInt(out, int64(len(job.Body)), 10)
	out = append(out, "\r\n"...)
	out = append(out, job.Body...)
	n.conn.SetOut(append(out, "\r\n"...))
	if n.w.Prefetch == 0 {
		n.conn.Flush()
	}
}

func (n *natsWorker) handleLine(in []byte) int {
	line, payload, used := nextLine(in)
	switch {
	case used == 0:
	case payload != nil:
		n.w.Job(load.Job{Reply: replySubject(line), Body: payload})
	case !n.handleControl(line):
		n.w.Refused("nats", string(line))
	}
	return used
}

// replySubject returns the last word but one of "MSG subject sid reply size".
func replySubject(line []byte) []byte {
	line = line[:bytes.LastIndexByte(line, ' ')]
	return line[bytes.LastIndexByte(line, ' ')+1:]
}

func natsArgs(port string, _ Settings) []string { return []string{"-a", "127.0.0.1", "-p", port} }
