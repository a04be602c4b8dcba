package brokers

import (
	"bytes"
	"strconv"

	"gloom/bench/load"
)

// Beanstalk uses beanstalkd's protocol, which has no answers: a worker puts the echo into a tube of
// the submitter. The submitter reserves from it on a second connection, because a connection that
// waits in reserve accepts no other command.
var Beanstalk = load.Protocol{
	Traits:    load.Traits{Acks: load.CountedAcks, Queues: true},
	Submitter: newBeanstalkSubmitter, Worker: newBeanstalkWorker,
}

func newBeanstalkSubmitter(s *load.Submitter) load.SubmitterSide {
	b := &beanSubmitter{s: s}
	for _, name := range s.Types() {
		b.useCommands = append(b.useCommands, []byte("use "+name+"\r\n"))
	}
	reserve := append([]byte(nil), "watch "+replyTube+strconv.Itoa(s.Index)+"\r\nignore default\r\n"...)
	for range reservesAhead {
		reserve = append(reserve, "reserve\r\n"...)
	}
	b.serverConn = serverConn{peer: s, greeting: b.useCommands[0], handleNext: b.handleReply}
	b.answers = serverConn{peer: s, greeting: reserve, handleNext: b.handleReply}
	return b
}

func newBeanstalkWorker(w *load.Worker) load.WorkerSide {
	b := &beanWorker{w: w, usedTube: -1}
	b.serverConn = serverConn{peer: w, greeting: []byte("watch " + w.Type + "\r\nignore default\r\nreserve\r\n"), handleNext: b.handleReply}
	return b
}

const (
	beanTTR = "3600" // seconds a reserved job may take
	// reservesAhead is the number of reserves that a submitter keeps in flight, so that one read
	// brings many answers.
	reservesAhead      = 64
	replyTube          = "reply-"
	beanMiddlePriority = 1 << 31 // priority 0 is the most urgent there
)

// beanReply is one reply: its words, and the data of a RESERVED reply.
type beanReply struct {
	name, arg, data []byte
}

// nextBeanReply returns the reply at the start of in, and its length; used is 0 while the reply is
// incomplete.
func nextBeanReply(in []byte) (r beanReply, used int) {
	end := bytes.IndexByte(in, '\n')
	if end < 1 {
		return r, 0
	}
	var rest []byte
	r.name, rest, _ = bytes.Cut(in[:end-1], []byte(" "))
	used = end + 1
	if string(r.name) != "RESERVED" {
		r.arg = rest
		return r, used
	}
	var size []byte
	r.arg, size, _ = bytes.Cut(rest, []byte(" "))
	n, err := strconv.Atoi(string(size))
	if err != nil || len(in)-used < n+2 {
		return r, 0
	}
	r.data = in[used : used+n]
	return r, used + n + 2
}

func appendPut(out []byte, priority int64, size int) []byte {
	out = append(out, "put "...)
	out = strconv.AppendInt(out, beanMiddlePriority-priority, 10)
	out = append(out, " 0 "+beanTTR+" "...)
	out = strconv.AppendInt(out, int64(size), 10)
	return append(out, "\r\n"...)
}

func appendDelete(out, id []byte) []byte {
	out = append(out, "delete "...)
	out = append(out, id...)
	return append(out, "\r\n"...)
}

type beanSubmitter struct {
	twoConns
	s           *load.Submitter
	useCommands [][]byte
	typ         int // the tube in use
}

func (b *beanSubmitter) Submit(typ int, priority int64, n load.Number) {
	out := b.conn.Out()
	if typ != b.typ {
		b.typ = typ
		out = append(out, b.useCommands[typ]...)
	}
	out = appendPut(out, priority, b.s.Body().Len())
	out = b.s.Body().Append(out, n)
	b.conn.SetOut(append(out, "\r\n"...))
}

func (b *beanSubmitter) handleReply(in []byte) int {
	r, used := nextBeanReply(in)
	if used == 0 {
		return 0
	}
	switch string(r.name) {
	case "INSERTED":
		b.s.AckedNext()
	case "RESERVED":
		b.s.Answered(nil, r.data)
		b.answers.conn.SetOut(append(appendDelete(b.answers.conn.Out(), r.arg), "reserve\r\n"...))
	case "DELETED", "USING":
	case "WATCHING":
		if string(r.arg) == "1" { // after the ignore
			b.s.Ready()
		}
	default:
		b.s.Refused(nil, string(r.name), string(r.arg))
	}
	return used
}

type beanWorker struct {
	serverConn
	w        *load.Worker
	usedTube int // the submitter whose tube is in use
}

// Answer puts the echo, deletes the job and reserves the next one in one write.
func (b *beanWorker) Answer(job load.Job) {
	n, ok := b.w.Body().Number(job.Body)
	if !ok {
		b.w.Misbehaved("job %s with body %.60q", job.ID, job.Body)
		return
	}
	out := b.conn.Out()
	if to := n.Submitter(); to != b.usedTube {
		b.usedTube = to
		out = append(out, "use "+replyTube...)
		out = strconv.AppendInt(out, int64(to), 10)
		out = append(out, "\r\n"...)
	}
	out = appendPut(out, 0, len(job.Body))
	out = append(out, job.Body...)
	out = append(out, "\r\n"...)
	b.conn.SetOut(append(appendDelete(out, job.ID), "reserve\r\n"...))
}

func (b *beanWorker) handleReply(in []byte) int {
	r, used := nextBeanReply(in)
	if used == 0 {
		return 0
	}
	switch string(r.name) {
	case "RESERVED":
		b.w.Job(load.Job{ID: r.arg, Body: r.data})
	case "INSERTED", "DELETED", "USING":
	case "WATCHING":
		if string(r.arg) == "1" {
			b.w.Ready()
		}
	default:
		b.w.Refused(string(r.name), string(r.arg))
	}
	return used
}

func beanstalkdArgs(port string, set Settings) []string {
	return []string{"-l", "127.0.0.1", "-p", port, "-z", strconv.Itoa(max(65535, set.BodySize))}
}
