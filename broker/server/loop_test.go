package server

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"gloom/broker"
	"gloom/broker/hub"
	"gloom/broker/poll"
	"gloom/broker/settings"
	"gloom/wire"
)

// TestInputDuringWriteIsHandled: a loop handles the bytes that it reads while another goroutine is
// about to write the loop's output. The output does not wake the loop.
func TestInputDuringWriteIsHandled(t *testing.T) {
	t.Parallel()
	s, err := Start(testOptions(nil), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := dial(t, s.SubmitAddr())
	p.send(`{"action":"ping"}`)
	p.wantFrame("ok", true)
	var peer broker.Peer
	var lp *loop
	s.Hub().EachConn(func(c *hub.Conn) { peer, lp = c.Peer, c.OwnerData.(*conn).loop })

	isWriting, resume := make(chan struct{}), make(chan struct{})
	slowSink := s.Hub().NewSink(hub.SinkOwner{Write: func() bool { close(isWriting); <-resume; return true }})
	other := s.Hub().Open(wire.SubmitPort, slowSink, nil, "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Hub().Do(func(*broker.Broker, int64) []broker.Effect {
			return []broker.Effect{{Op: broker.OpOK, Peer: other.Peer, ID: []byte("x")}, {Op: broker.OpOK, Peer: peer, ID: []byte("y")}}
		})
	}()
	<-isWriting
	p.send(`{"action":"ping"}`)
	eventually(t, "the loop has read", func() (read bool) {
		lp.poller.Call(func() { read = len(lp.reads) > 0 })
		return read
	})
	close(resume)
	p.wantFrame("id", "y")
	p.wantFrame("ok", true)
	<-done
}

// TestWorkerWithFullSocketGetsNoJob: a worker whose socket has accepted no byte of its output gets no further
// job, because it may be lost.
func TestWorkerWithFullSocketGetsNoJob(t *testing.T) {
	s := startServer(t, func(o *settings.Options) { o.MaxOutbound = 8000 })
	w, _ := connPair(t, s, wire.WorkerPort)
	lp, fd := w.loop, w.source.(*socket).fd
	lp.beginTurn(w, 0)
	w.handleInput(frame(`{"action":"join","type":"t","prefetch":9}`))
	submitter := dial(t, s.SubmitAddr())
	body := strings.Repeat("x", 1500)
	submit := func(id string) {
		submitter.send(`{"action":"submit","id":%q,"type":"t","body":"%s"}`, id, body)
		submitter.wantFrame("ok", true)
		lp.write()
	}
	lp.write()
	submit("a")
	submit("b")
	for padding, errno := make([]byte, 1<<10), error(nil); errno == nil; {
		_, errno = poll.Send(fd, padding)
	}
	submit("c")
	submit("d")
	s.Hub().View(func(b *broker.Broker, _ int64) {
		if n := b.Totals().Running; n != 3 {
			t.Errorf("%d jobs are out, want 3: with them the worker has used up its credit", n)
		}
	})
}

// TestReadsFitTurns: if a peer sends more than fits in its turns, most of it stays in the socket,
// because the broker would have to keep it.
func TestReadsFitTurns(t *testing.T) {
	s := startServer(t, nil)
	c, fd := connPair(t, s, wire.SubmitPort)
	lp, ownFD := c.loop, c.source.(*socket).fd
	poller, err := poll.Open() // nobody waits for its events: the test calls the loop
	if err != nil {
		t.Fatal(err)
	}
	defer poller.Close()
	lp.readBuf, lp.poller = make([]byte, readBufSize), poller
	flood := bytes.Repeat(frame(`{"action":"cancel","id":"no"}`), 50_000)
	for limit := 0; ; {
		n, err := poll.Send(fd, flood)
		for ; err == nil && n < len(flood); n, err = poll.Send(fd, flood) {
			flood = flood[n:]
		}
		if err == nil {
			break
		}
		if len(c.input.rest) == 0 {
			limit = c.readLimit
		}
		lp.lastCutTurns = streamBusyConns // many connections are busy, so turns are short
		lp.read(c, ownFD, false)
		lp.read(c, ownFD, false)
		lp.flush()
		if n := len(c.input.rest); n > limit+limit/4 {
			t.Fatalf("%d bytes wait in the broker; a read may take %d", n, limit)
		}
		for answers := make([]byte, 1<<16); c.hubConn.UnreadBytes() > 0; lp.send(c) {
			_, _ = poll.Receive(fd, answers)
		}
	}
}
