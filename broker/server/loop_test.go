package server

import (
	"testing"

	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/hub"
	"gloom/wire"
)

// TestReadWhileAnotherWrites: what a loop reads while somebody is about to write its
// output is carried out, though the loop is not woken for that output.
func TestReadWhileAnotherWrites(t *testing.T) {
	t.Parallel()
	s, err := Start(options(nil), zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := dial(t, s.SubmitAddr())
	p.send(`{"action":"ping"}`)
	p.want("ok", true)
	var peer broker.Peer
	var lp *loop
	s.Hub().Each(func(c *hub.Conn) { peer, lp = c.Peer(), c.Owner.(*conn).loop })

	reached, on := make(chan struct{}), make(chan struct{})
	slow := s.Hub().NewSink(hub.Owner{Write: func() bool { close(reached); <-on; return true }})
	other := s.Hub().Open(wire.SubmitPort, slow, nil, "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Hub().Do(func(*broker.Broker, int64) []broker.Effect {
			return []broker.Effect{{Op: broker.OpOK, Peer: other.Peer(), ID: []byte("x")}, {Op: broker.OpOK, Peer: peer, ID: []byte("y")}}
		})
	}()
	<-reached
	p.send(`{"action":"ping"}`)
	until(t, "the loop has read", func() bool {
		lp.poller.turn.Lock()
		defer lp.poller.turn.Unlock()
		return len(lp.reads) > 0
	})
	close(on)
	p.want("id", "y")
	p.want("ok", true)
	<-done
}
