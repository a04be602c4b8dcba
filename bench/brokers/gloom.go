package brokers

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"

	"gloom/bench/load"
)

// Gloom uses the protocol of gloomd. Frames in the form that gloomd writes are recognised by
// comparing bytes; any other form is decoded as JSON, which is slower and gives the same.
var Gloom = load.Protocol{
	Traits:    load.Traits{Acks: load.NamedAcks, Queues: true, Prefetch: true, Groups: true, TracksPeers: true},
	Submitter: func(s *load.Submitter) load.SubmitterSide { return newGloomSubmitter(s) }, Worker: func(w *load.Worker) load.WorkerSide { return newGloomWorker(w) },
}

const frameHeadLen = 4

// nextFrame returns the frame at the start of in, nil while it is not complete.
func nextFrame(in []byte) (payload []byte, used int) {
	if len(in) < frameHeadLen {
		return nil, 0
	}
	n := int(binary.BigEndian.Uint32(in))
	if len(in)-frameHeadLen < n {
		return nil, 0
	}
	return in[frameHeadLen : frameHeadLen+n : frameHeadLen+n], frameHeadLen + n
}

// closeFrame writes the length of the frame that begins at from.
func closeFrame(out []byte, from int) []byte {
	binary.BigEndian.PutUint32(out[from:], uint32(len(out)-from-frameHeadLen))
	return out
}

type gloomSubmitter struct {
	serverConn
	s     *load.Submitter
	heads [][]byte // for each type, the part of the frame from the end of the id to the body or priority
	group int      // the group of the next job
}

func newGloomSubmitter(s *load.Submitter) *gloomSubmitter {
	g := &gloomSubmitter{s: s}
	for _, name := range s.Types() {
		g.heads = append(g.heads, []byte(`","type":"`+name+`"`))
	}
	g.serverConn = serverConn{peer: s, handleNext: g.handleFrame}
	return g
}

const submitOpen = "\x00\x00\x00\x00" + `{"action":"submit","id":"`

func (g *gloomSubmitter) Submit(typ int, priority int64, n load.Number) {
	out := g.conn.Out()
	from := len(out)
	out = append(out, submitOpen...)
	out = n.Append(out)
	out = append(out, g.heads[typ]...)
	if priority != 0 {
		out = append(out, `,"priority":`...)
		out = strconv.AppendInt(out, priority, 10)
	}
	if groups := g.s.Groups(); groups > 0 {
		out = append(out, `,"groups":["g`...)
		out = strconv.AppendInt(out, int64(g.group), 10)
		out = append(out, `"]`...)
		g.group = (g.group + 1) % groups
	}
	out = append(out, `,"body":`...)
	out = g.s.Body().Append(out, n)
	out = append(out, '}')
	g.conn.SetOut(closeFrame(out, from))
}

const (
	ackOpen     = `{"ok":true,"id":"`
	ackLen      = len(ackOpen) + load.NumberLen + len(`"}`)
	resultOpen  = `{"id":"`
	resultMid   = `","body":`
	resultStart = len(resultOpen) + load.NumberLen + len(resultMid)
)

func (g *gloomSubmitter) handleFrame(in []byte) int {
	p, used := nextFrame(in)
	switch {
	case used == 0:
	case len(p) == ackLen && string(p[:len(ackOpen)]) == ackOpen && string(p[ackLen-2:]) == `"}`:
		g.s.Acked(p[len(ackOpen) : ackLen-2])
	case len(p) > resultStart && string(p[:len(resultOpen)]) == resultOpen &&
		string(p[resultStart-len(resultMid):resultStart]) == resultMid && p[len(p)-1] == '}':
		g.s.Answered(p[len(resultOpen):resultStart-len(resultMid)], p[resultStart:len(p)-1])
	default:
		g.decodeFrame(p)
	}
	return used
}

// message is any frame that a submitter or worker may get.
type message struct {
	Action string          `json:"action"`
	OK     *bool           `json:"ok"`
	ID     *string         `json:"id"`
	Type   *string         `json:"type"`
	Body   json.RawMessage `json:"body"`
	Error  *string         `json:"error"`
	Reason string          `json:"reason"`
}

func (m *message) id() []byte {
	if m.ID == nil {
		return nil
	}
	return []byte(*m.ID)
}

func (g *gloomSubmitter) decodeFrame(p []byte) {
	var m message
	err := json.Unmarshal(p, &m)
	switch {
	case err != nil:
		g.s.Misbehaved("frame %.80q: %v", p, err)
	case m.Error != nil:
		g.s.Refused(m.id(), *m.Error, m.Reason)
	case m.OK != nil && *m.OK && m.ID != nil:
		g.s.Acked(m.id())
	case m.ID != nil && m.Body != nil:
		g.s.Answered(m.id(), m.Body)
	default:
		g.s.Misbehaved("frame %.80q to a submitter", p)
	}
}

type gloomWorker struct {
	serverConn
	w        *load.Worker
	afterID  []byte // the part of a job frame between id and body
	namesJob bool   // answers must name their job
}

func newGloomWorker(w *load.Worker) *gloomWorker {
	g := &gloomWorker{w: w, afterID: []byte(`","type":"` + w.Type + `","body":`), namesJob: w.Prefetch > 0}
	join := append([]byte(nil), "\x00\x00\x00\x00"+`{"action":"join",`...)
	if w.ServesAll {
		join = append(join, `"types":["`+w.Type+`*"]`...)
		g.afterID = []byte(`","type":"` + w.Type)
	} else {
		join = append(join, `"type":"`+w.Type+`"`...)
	}
	if g.namesJob {
		join = append(join, `,"prefetch":`...)
		join = strconv.AppendInt(join, int64(w.Prefetch), 10)
	}
	g.serverConn = serverConn{peer: w, greeting: closeFrame(append(join, '}'), 0), handleNext: g.handleFrame}
	return g
}

const (
	okFrame      = `{"ok":true}`
	jobPrefix    = `{"action":"job","id":"`
	answerPrefix = "\x00\x00\x00\x00" + `{"action":"respond",`
)

func (g *gloomWorker) Answer(job load.Job) {
	out := g.conn.Out()
	from := len(out)
	out = append(out, answerPrefix...)
	if g.namesJob {
		out = append(out, `"id":"`...)
		out = append(out, job.ID...)
		out = append(out, `",`...)
	}
	out = append(out, `"body":`...)
	out = append(out, job.Body...)
	out = append(out, '}')
	g.conn.SetOut(closeFrame(out, from))
	g.w.CountAnswer()
}

func (g *gloomWorker) handleFrame(in []byte) int {
	p, used := nextFrame(in)
	if used == 0 {
		return 0
	}
	if string(p) == okFrame {
		g.handleOK()
	} else if id, body, ok := g.parseJob(p); ok {
		g.takeJob(id, body)
	} else {
		g.decodeFrame(p)
	}
	return used
}

func (g *gloomWorker) parseJob(p []byte) (id, body []byte, ok bool) {
	const idEnd = len(jobPrefix) + load.NumberLen
	start := idEnd + len(g.afterID)
	if len(p) <= start+1 || string(p[:len(jobPrefix)]) != jobPrefix || !bytes.Equal(p[idEnd:start], g.afterID) || p[len(p)-1] != '}' {
		return nil, nil, false
	}
	if g.w.ServesAll {
		n := bytes.Index(p[start:], []byte(resultMid))
		if n < 0 {
			return nil, nil, false
		}
		start += n + len(resultMid)
	}
	return p[len(jobPrefix):idEnd], p[start : len(p)-1], true
}

func (g *gloomWorker) serves(typ string) bool {
	return typ == g.w.Type || g.w.ServesAll && strings.HasPrefix(typ, g.w.Type)
}

func (g *gloomWorker) handleOK() {
	switch {
	case !g.w.Joined():
		g.w.Ready()
	case !g.w.AnswerAcked():
		g.w.Misbehaved("an ok that worker %d did not expect", g.w.Index)
	}
}

func (g *gloomWorker) takeJob(id, body []byte) {
	if !g.w.Joined() || !g.namesJob && g.w.UnackedAnswers() > 0 {
		g.w.Misbehaved("job %s came before the ok that worker %d expects", id, g.w.Index)
	}
	g.w.Job(load.Job{ID: id, Body: body})
}

func (g *gloomWorker) decodeFrame(p []byte) {
	var m message
	err := json.Unmarshal(p, &m)
	switch {
	case err != nil:
		g.w.Misbehaved("frame %.80q: %v", p, err)
	case m.Error != nil:
		g.w.Refused(*m.Error, m.Reason)
	case m.OK != nil && *m.OK:
		g.handleOK()
	case m.Action == "job" && m.ID != nil && m.Type != nil && g.serves(*m.Type) && m.Body != nil:
		g.takeJob(m.id(), m.Body)
	default:
		g.w.Misbehaved("frame %.80q to a worker of %s", p, g.w.Type)
	}
}
