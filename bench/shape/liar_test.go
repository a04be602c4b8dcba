package shape_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"gloom/bench/brokers"
)

// liar is a small Gloom server with faults: its functions get each frame before it is sent, and
// return the frames that are sent instead.
type liar struct {
	submit, work net.Listener

	mu    sync.Mutex
	jobs  []liarJob
	idle  []*liarPeer
	count int // number of answers so far

	onSubmit func(ack string) []string
	onAnswer func(n int, id, body string) []string
	onOK     func() []string // the ok of a worker's respond
	hangUp   int             // close the submitter's connection at this answer
}

type liarJob struct {
	id, typ string
	body    json.RawMessage
	from    *liarPeer
}

type liarPeer struct {
	conn net.Conn
	out  *bufio.Writer
	job  *liarJob
}

func (p *liarPeer) send(payloads ...string) {
	for _, s := range payloads {
		_ = binary.Write(p.out, binary.BigEndian, uint32(len(s)))
		_, _ = p.out.WriteString(s)
	}
	_ = p.out.Flush()
}

func startLiar(t *testing.T, l *liar) *brokers.Server {
	t.Helper()
	var err error
	if l.submit, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if l.work, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.submit.Close(); l.work.Close() })
	go l.accept(l.submit, l.submitted)
	go l.accept(l.work, l.worked)
	return &brokers.Server{Kind: "liar", Title: "liar", Protocol: brokers.Gloom, SubmitAddr: l.submit.Addr().String(),
		WorkerAddr: l.work.Addr().String()}
}

type liarFrame struct {
	Action string          `json:"action"`
	ID     string          `json:"id"`
	Type   string          `json:"type"`
	Body   json.RawMessage `json:"body"`
}

func (l *liar) accept(lis net.Listener, handle func(p *liarPeer, f liarFrame)) {
	for {
		c, err := lis.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			p := &liarPeer{conn: c, out: bufio.NewWriter(c)}
			in := bufio.NewReader(c)
			for {
				var n uint32
				if binary.Read(in, binary.BigEndian, &n) != nil {
					return
				}
				payload := make([]byte, n)
				if _, err := io.ReadFull(in, payload); err != nil {
					return
				}
				var f liarFrame
				if json.Unmarshal(payload, &f) != nil {
					return
				}
				l.mu.Lock()
				handle(p, f)
				l.mu.Unlock()
			}
		}()
	}
}

func (l *liar) submitted(p *liarPeer, f liarFrame) {
	ack := fmt.Sprintf(`{"ok":true,"id":"%s"}`, f.ID)
	if l.onSubmit != nil {
		p.send(l.onSubmit(ack)...)
	} else {
		p.send(ack)
	}
	l.jobs = append(l.jobs, liarJob{f.ID, f.Type, f.Body, p})
	l.dispatch()
}

func (l *liar) worked(p *liarPeer, f liarFrame) {
	ok := []string{`{"ok":true}`}
	if f.Action == "respond" {
		if l.onOK != nil {
			ok = l.onOK()
		}
		job := p.job
		p.job = nil
		l.count++
		answers := []string{answer(job.id, string(f.Body))}
		if l.onAnswer != nil {
			answers = l.onAnswer(l.count, job.id, string(f.Body))
		}
		if l.count == l.hangUp {
			job.from.conn.Close()
		}
		job.from.send(answers...)
	}
	p.send(ok...)
	l.idle = append(l.idle, p)
	l.dispatch()
}

func (l *liar) dispatch() {
	for len(l.jobs) > 0 && len(l.idle) > 0 {
		j, w := l.jobs[0], l.idle[0]
		l.jobs, l.idle = l.jobs[1:], l.idle[1:]
		w.job = &j
		w.send(fmt.Sprintf(`{"action":"job","id":"%s","type":"%s","body":%s}`, j.id, j.typ, j.body))
	}
}

func answer(id, body string) string { return fmt.Sprintf(`{"id":"%s","body":%s}`, id, body) }
