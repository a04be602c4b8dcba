package brokers

import (
	"bytes"
	"strconv"

	"gloom/bench/load"
)

// Redis uses lists: submitters push onto one list per type. A worker blocks on it for one job at a
// time and pushes the echo onto a list of the submitter. The submitter takes all echoes from its
// list with one BLMPOP, on a second connection, because BLMPOP blocks.
var Redis = load.Protocol{
	Traits:    load.Traits{Acks: load.CountedAcks, Queues: true},
	Submitter: newRedisSubmitter, Worker: newRedisWorker,
}

func newRedisSubmitter(s *load.Submitter) load.SubmitterSide {
	r := &redisSubmitter{s: s, popCommand: command("BLMPOP", "0", "1", replyList(s.Index), "LEFT", "COUNT", "1024")}
	for _, name := range s.Types() {
		r.pushHeads = append(r.pushHeads, pushHead(name, s.Body().Len()))
	}
	r.serverConn = serverConn{peer: s, greeting: command("PING"), handleNext: r.handlePushed}
	r.answers = serverConn{peer: s, greeting: r.popCommand, handleNext: r.handlePopped}
	return r
}

func newRedisWorker(w *load.Worker) load.WorkerSide {
	r := &redisWorker{w: w, popCommand: command("BLPOP", w.Type, "0"), replies: map[int][]byte{}}
	r.serverConn = serverConn{peer: w, greeting: append(command("PING"), r.popCommand...), handleNext: r.handleReply}
	return r
}

func replyList(submitter int) string { return "reply-" + strconv.Itoa(submitter) }

// command encodes a command for Redis.
func command(args ...string) []byte {
	out := append([]byte("*"), strconv.Itoa(len(args))...)
	for _, w := range args {
		out = append(out, "\r\n$"...)
		out = strconv.AppendInt(out, int64(len(w)), 10)
		out = append(out, "\r\n"...)
		out = append(out, w...)
	}
	return append(out, "\r\n"...)
}

// pushHead returns an RPUSH of one value, up to the value.
func pushHead(list string, size int) []byte {
	out := command("RPUSH", list)
	out[1] = '3'
	out = append(out, '$')
	out = strconv.AppendInt(out, int64(size), 10)
	return append(out, "\r\n"...)
}

// respItem is one element of a reply; the elements of an array are items too.
type respItem struct {
	kind byte // one of + - : $ *
	n    int  // value of an integer, or length of an array
	text []byte
}

// nextRESPItem returns the element at the start of in, and its length; used is 0 while the element is
// incomplete.
func nextRESPItem(in []byte) (reply respItem, used int) {
	end := bytes.IndexByte(in, '\n')
	if end < 2 {
		return reply, 0
	}
	reply.kind, reply.text, used = in[0], in[1:end-1], end+1
	if reply.kind == '+' || reply.kind == '-' {
		return reply, used
	}
	for _, c := range reply.text {
		reply.n = reply.n*10 + int(c-'0') // no valid reply is negative
	}
	if reply.kind != '$' {
		return reply, used
	}
	if len(in)-used < reply.n+2 {
		return reply, 0
	}
	reply.text = in[used : used+reply.n]
	return reply, used + reply.n + 2
}

type redisSubmitter struct {
	twoConns
	s           *load.Submitter
	pushHeads   [][]byte
	popCommand  []byte
	answersLeft int // answers still to come in the current reply
	withID      bool
}

func (r *redisSubmitter) Submit(typ int, _ int64, n load.Number) {
	out := append(r.conn.Out(), r.pushHeads[typ]...)
	out = r.s.Body().Append(out, n)
	r.conn.SetOut(append(out, "\r\n"...))
}

func (r *redisSubmitter) handlePushed(in []byte) int {
	reply, used := nextRESPItem(in)
	switch {
	case used == 0:
	case reply.kind == ':':
		r.s.AckedNext()
	case reply.kind == '+':
		r.s.Ready()
	case reply.kind == '-':
		r.s.Refused(nil, "redis error", string(reply.text))
	default:
		r.s.Misbehaved("reply %c%.60q to a push", reply.kind, reply.text)
	}
	return used
}

// handlePopped handles the reply [list, [answer, …]] to a take, element by element.
func (r *redisSubmitter) handlePopped(in []byte) int {
	reply, used := nextRESPItem(in)
	switch {
	case used == 0:
	case reply.kind == '-':
		r.s.Refused(nil, "redis error", string(reply.text))
	case reply.kind == '*' && !r.withID: // the outer array
	case reply.kind == '*':
		r.answersLeft = reply.n
		// The next take is sent at once; it waits until this reply is read.
		r.answers.conn.SetOut(append(r.answers.conn.Out(), r.popCommand...))
	case !r.withID:
		r.withID = true
	case r.answersLeft > 0:
		r.s.Answered(nil, reply.text)
		r.answersLeft--
		r.withID = r.answersLeft > 0
	default:
		r.s.Misbehaved("reply %c%.60q to a take", reply.kind, reply.text)
	}
	return used
}

type redisWorker struct {
	serverConn
	w          *load.Worker
	popCommand []byte
	replies    map[int][]byte // for each submitter, the head of a push, up to the value
	withID     bool           // the name of the list has been read, and the job comes next
}

// Answer pushes the echo and takes the next job in one write.
func (r *redisWorker) Answer(job load.Job) {
	n, ok := r.w.Body().Number(job.Body)
	if !ok {
		r.w.Misbehaved("a job with body %.60q", job.Body)
		return
	}
	head, ok := r.replies[n.Submitter()]
	if !ok {
		head = pushHead(replyList(n.Submitter()), len(job.Body))
		r.replies[n.Submitter()] = head
	}
	out := append(r.conn.Out(), head...)
	out = append(out, job.Body...)
	out = append(out, "\r\n"...)
	r.conn.SetOut(append(out, r.popCommand...))
}

func (r *redisWorker) handleReply(in []byte) int {
	reply, used := nextRESPItem(in)
	switch {
	case used == 0:
	case reply.kind == '-':
		r.w.Refused("redis error", string(reply.text))
	case reply.kind == '+':
		r.w.Ready()
	case reply.kind == '$' && !r.withID:
		r.withID = true
	case reply.kind == '$':
		r.withID = false
		r.w.Job(load.Job{Body: reply.text})
	}
	return used
}

// redisArgs are the arguments with which Redis keeps everything in memory only, like the other
// servers.
func redisArgs(port string, _ Settings) []string {
	return []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--tcp-backlog", "4096",
		"--maxclients", "100000"}
}
