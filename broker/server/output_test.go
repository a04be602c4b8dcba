package server

import (
	"fmt"
	"strings"
	"testing"

	"gloom/broker/hub"
	"gloom/broker/settings"
	"gloom/wire"
)

// TestManyBigJobsArriveWhole: one connection gets more big bodies at once than a write can have
// pieces.
func TestManyBigJobsArriveWhole(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *settings.Options) { o.MaxOutbound = 1 << 30 })
	submitter, worker := dial(t, s.SubmitAddr()), dial(t, s.WorkerAddr())
	const n = maxParts/2 + 100
	body := strings.Repeat("x", minBigFrame)
	for i := range n {
		submitter.send(`{"action":"submit","id":"j%d","type":"t","body":"%s"}`, i, body)
		submitter.wantFrame("ok", true)
	}
	worker.send(`{"action":"join","type":"t","prefetch":%d}`, n)
	worker.wantFrame("ok", true)
	for i := range n {
		worker.wantFrame("id", fmt.Sprint("j", i))
	}
}

// TestLateReaderIsNotListed: once a submitter has read everything, it is not listed as one that does not
// read, and no backlog of it is reported.
func TestLateReaderIsNotListed(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *settings.Options) { o.MaxOutbound = 1 << 20 })
	submitter, worker := dial(t, s.SubmitAddr()).shrinkBuffers(), dial(t, s.WorkerAddr())
	const n = 3
	for i := range n {
		submitter.send(`{"action":"submit","id":"j%d","type":"t","body":1}`, i)
		submitter.wantFrame("ok", true)
	}
	worker.send(`{"action":"join","type":"t"}`)
	worker.wantFrame("ok", true)
	body := strings.Repeat("x", 12<<20) // more than the buffers of a socket hold
	for i := range n {
		worker.wantFrame("id", fmt.Sprint("j", i))
		worker.send(`{"action":"respond","body":"%s"}`, body)
		worker.wantFrame("ok", true)
		eventually(t, "output is held back", func() bool { _, sum, _ := s.Hub().Backlog(); return sum > 1<<20 })
		submitter.wantFrame("id", fmt.Sprint("j", i))
	}
	eventually(t, "the backlog is gone", func() bool { _, sum, _ := s.Hub().Backlog(); return sum == 0 })
	if n := s.Hub().Stats().Overflows; n != 0 {
		t.Errorf("%d connections were given up", n)
	}
}

// TestFramesDuringPauseAreCarriedOut: frames that a peer sends while it has too much to read are
// carried out once the peer has read enough, even if the frames were on their way when the pause
// began.
func TestFramesDuringPauseAreCarriedOut(t *testing.T) {
	t.Parallel()
	for _, name := range transports {
		s := startServer(t, func(o *settings.Options) {
			o.MaxOutbound = 1 << 20
			if name == "TLS" {
				setCertificate(t, o)
			}
		})
		submitter, worker := dialTransport(t, s, name), dialInProcess(t, s, wire.WorkerPort)
		submitter.send(`{"action":"submit","id":"j","type":"t","body":1}`)
		submitter.wantFrame("ok", true)
		worker.send(`{"action":"join","type":"t"}`)
		worker.wantFrame("ok", true)
		worker.wantFrame("id", "j")
		worker.send(`{"action":"respond","body":"%s"}`, strings.Repeat("x", 12<<20)) // more than the buffers of a socket hold
		worker.wantFrame("ok", true)
		var ownConn *conn
		s.Hub().EachConn(func(c *hub.Conn) {
			if c.Port == wire.SubmitPort {
				ownConn = c.OwnerData.(*conn)
			}
		})
		eventually(t, "the pause has begun", func() (hasBegun bool) {
			ownConn.loop.poller.Call(func() { hasBegun = ownConn.readState == readPaused })
			return hasBegun
		})
		submitter.send(`{"action":"ping"}`)
		submitter.wantFrame("id", "j")
		submitter.wantFrame("ok", true)
	}
}
