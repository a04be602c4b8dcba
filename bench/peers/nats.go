package peers

import (
	"bytes"
	"strconv"

	"gloom/bench/load"
	"gloom/bench/poll"
)

// NATS uses request and reply: submitters publish with a reply subject of their
// own, workers are one queue group. Nothing is acknowledged and nothing waits: a
// job goes to a worker's socket at once, however busy that worker is. To do the
// same work as elsewhere, a worker takes its jobs one at a time and sends each
// answer before it looks at the next job; with prefetch it takes all that have
// come and answers them together.
type NATS struct{}

// Traits implements load.Protocol.
func (NATS) Traits() load.Traits { return load.Traits{Acks: load.NoAcks, Prefetch: true} }

// Submitter implements load.Protocol.
func (NATS) Submitter(s *load.Submitter) load.SubmitSide {
	n := &natsSubmitter{s: s, inbox: "reply." + strconv.Itoa(s.Index)}
	for _, name := range s.Types() {
		n.pubs = append(n.pubs, []byte("PUB "+name+" "+n.inbox+" "+strconv.Itoa(s.Body().Len())+"\r\n"))
	}
	return n
}

// Worker implements load.Protocol.
func (NATS) Worker(w *load.Worker) load.WorkSide { return &natsWorker{w: w} }

const natsConnect = `CONNECT {"verbose":false,"pedantic":false,"lang":"go","version":"1","name":"gloom-bench"}` + "\r\n"

// nextLine cuts the first control line off in, and the payload of a message;
// used 0 when they are not complete.
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

type natsSubmitter struct {
	s     *load.Submitter
	c     *poll.Conn
	inbox string
	pubs  [][]byte
}

func (n *natsSubmitter) Dial(l *poll.Loop) (err error) {
	if n.c, err = l.Dial(n.s.Addr(), n); err != nil {
		return err
	}
	n.c.SetOut(append([]byte(nil), natsConnect+"SUB "+n.inbox+" 1\r\nPING\r\n"...))
	return nil
}

func (n *natsSubmitter) Submit(typ int, _ int64, num load.Number) {
	out := append(n.c.Out(), n.pubs[typ]...)
	out = n.s.Body().Append(out, num)
	n.c.SetOut(append(out, "\r\n"...))
}

func (n *natsSubmitter) Pending() int { return n.c.Pending() }

func (n *natsSubmitter) Hangup(hard bool) { hangup(n.c, hard) }

func (n *natsSubmitter) Closed(_ *poll.Conn, err error) { n.s.Lost(err) }

func (n *natsSubmitter) Data(c *poll.Conn, in []byte, now int64) (used int) {
	n.s.Arrived(now)
	for {
		line, payload, k := nextLine(in[used:])
		if k == 0 {
			return used
		}
		used += k
		switch {
		case payload != nil:
			n.s.Answered(nil, payload)
		case string(line) == "PONG":
			n.s.Ready()
		case string(line) == "PING":
			c.SetOut(append(c.Out(), "PONG\r\n"...))
		case bytes.HasPrefix(line, []byte("INFO ")):
		default:
			n.s.Refused(nil, "nats", string(line))
		}
	}
}

type natsWorker struct {
	w *load.Worker
	c *poll.Conn
}

func (n *natsWorker) Dial(l *poll.Loop) (err error) {
	if n.c, err = l.Dial(n.w.Addr(), n); err != nil {
		return err
	}
	n.c.SetOut(append([]byte(nil), natsConnect+"SUB "+n.w.Type+" workers 1\r\nPING\r\n"...))
	return nil
}

func (n *natsWorker) Hangup(hard bool) { hangup(n.c, hard) }

func (n *natsWorker) Closed(_ *poll.Conn, err error) { n.w.Lost(err) }

func (n *natsWorker) Answer(job load.Job) {
	out := append(n.c.Out(), "PUB "...)
	out = append(out, job.Reply...)
	out = append(out, ' ')
	out = appendInt(out, int64(len(job.Body)))
	out = append(out, "\r\n"...)
	out = append(out, job.Body...)
	n.c.SetOut(append(out, "\r\n"...))
	if n.w.Prefetch == 0 {
		n.c.Flush()
	}
}

func (n *natsWorker) Data(c *poll.Conn, in []byte, now int64) (used int) {
	n.w.Arrived(now)
	for {
		line, payload, k := nextLine(in[used:])
		if k == 0 {
			return used
		}
		used += k
		switch {
		case payload != nil:
			n.w.Job(load.Job{Reply: replySubject(line), Body: payload})
		case string(line) == "PONG":
			n.w.Ready()
		case string(line) == "PING":
			c.SetOut(append(c.Out(), "PONG\r\n"...))
		case bytes.HasPrefix(line, []byte("INFO ")):
		default:
			n.w.Refused("nats", string(line))
		}
	}
}

// replySubject is the last word but one of "MSG subject sid reply size".
func replySubject(line []byte) []byte {
	line = line[:bytes.LastIndexByte(line, ' ')]
	return line[bytes.LastIndexByte(line, ' ')+1:]
}

func natsArgs(port string, _ Settings) []string { return []string{"-a", "127.0.0.1", "-p", port} }
