package server

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"gloom/broker/hub"
	"gloom/broker/settings"
	"gloom/wire"
)

// transports are the ways in which a peer can connect to a broker.
var transports = []string{"plain", "TLS", "within the process"}

// dialTransport connects as a submitter over the given transport.
func dialTransport(t *testing.T, s *Server, transport string) *peer {
	t.Helper()
	switch transport {
	case "plain":
		return dial(t, s.SubmitAddr())
	case "TLS":
		return dialTLS(t, s.SubmitAddr())
	}
	return dialInProcess(t, s, wire.SubmitPort)
}

func dialInProcess(t *testing.T, s *Server, port wire.Port) *peer {
	t.Helper()
	nc, err := s.Dial(port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &peer{t, nc}
}

// TestConnectionsWithinProcessAreServed: connections within the process are served like others. A drain
// tells them how their jobs end. After a drain no such connection is accepted.
func TestConnectionsWithinProcessAreServed(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *settings.Options) { o.MaxConns = 1 })
	submitter, worker := dialInProcess(t, s, wire.SubmitPort), dialInProcess(t, s, wire.WorkerPort)
	worker.send(`{"action":"join","type":"t"}`)
	worker.wantFrame("ok", true)
	for _, id := range []string{"a", "b"} {
		submitter.send(`{"action":"submit","id":"%s","type":"t","body":1}`, id)
		submitter.wantFrame("ok", true)
	}
	worker.wantFrame("id", "a")
	worker.send(`{"action":"respond","body":2}`)
	submitter.wantFrame("id", "a")
	cancelledCtx, cancel := context.WithCancel(t.Context())
	cancel()
	stopErr := make(chan error, 1)
	go func() { stopErr <- s.Shutdown(cancelledCtx) }()
	submitter.wantFrame("id", "b")
	if m, err := submitter.next(); err == nil {
		t.Errorf("a submitter within the process got %v behind the last job's end", m)
	}
	go func() { // read what the worker is sent, as clients do
		for err := error(nil); err == nil; _, err = worker.next() {
		}
	}()
	if err := <-stopErr; err != nil {
		t.Fatal(err)
	}
	if nc, err := s.Dial(wire.SubmitPort); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a broker that has closed let %v in, %v", nc, err)
	}
}

// TestLostInProcessPeerIsNoticed: the broker notices that a peer within the process is gone, and gives its
// job to another worker.
func TestLostInProcessPeerIsNoticed(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	submitter, first := dialInProcess(t, s, wire.SubmitPort), dialInProcess(t, s, wire.WorkerPort)
	first.send(`{"action":"join","type":"t"}`)
	first.wantFrame("ok", true)
	submitter.send(`{"action":"submit","id":"a","type":"t","body":1}`)
	submitter.wantFrame("ok", true)
	first.wantFrame("id", "a")
	_ = first.Close()
	second := dialInProcess(t, s, wire.WorkerPort)
	second.send(`{"action":"join","type":"t"}`)
	second.wantFrame("ok", true)
	second.wantFrame("id", "a")
}

// TestReadOutcomeFreesID: with every transport, a submitter that has read a kept job's last frame may
// use the id again at once, on an old connection, too.
func TestReadOutcomeFreesID(t *testing.T) {
	t.Parallel()
	for _, name := range transports {
		s := startServer(t, func(o *settings.Options) {
			if name == "TLS" {
				setCertificate(t, o)
			}
		})
		submitter, worker := dialTransport(t, s, name), dialInProcess(t, s, wire.WorkerPort)
		worker.send(`{"action":"join","type":"t"}`)
		worker.wantFrame("ok", true)
		for start, i := time.Now(), 0; i < 20 || time.Since(start) < 250*time.Millisecond; i++ {
			submitter.send(`{"action":"submit","id":"a","type":"t","body":1,"keep_ms":60000}`)
			if m, err := submitter.next(); err != nil || m["ok"] != true {
				t.Fatalf("%s: submit %d got %v, %v", name, i, m, err)
			}
			worker.wantFrame("id", "a")
			worker.send(`{"action":"respond","body":2}`)
			worker.wantFrame("ok", true)
			submitter.wantFrame("id", "a")
		}
		eventually(t, "nobody is taken for one that does not read", func() bool {
			keptOutcomes := 0
			s.Hub().EachConn(func(c *hub.Conn) {
				if c.UnreadTime(s.Hub().Now()) > 0 {
					keptOutcomes++
				}
			})
			return keptOutcomes == 0
		})
	}
}
