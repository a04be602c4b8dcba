package server

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"gloom/broker/settings"
)

// startUnreadTLS starts a broker with TLS, a worker, and a submitter that submits n jobs and reads
// nothing but their oks.
func startUnreadTLS(t *testing.T, n int, set func(o *settings.Options)) (s *Server, submitter, worker *peer) {
	t.Helper()
	s = startServer(t, func(o *settings.Options) {
		setCertificate(t, o)
		set(o)
	})
	submitter, worker = dialTLS(t, s.SubmitAddr()), dialTLS(t, s.WorkerAddr())
	worker.send(`{"action":"join","type":"t"}`)
	worker.wantFrame("ok", true)
	for i := range n {
		submitter.send(`{"action":"submit","id":"j%d","type":"t","body":1}`, i)
		submitter.wantFrame("ok", true)
	}
	return s, submitter, worker
}

// TestUnreadTLSPeerIsClosed: a TLS peer that does not read is closed, although the goroutine that writes to
// it is blocked.
func TestUnreadTLSPeerIsClosed(t *testing.T) {
	t.Parallel()
	const n = 3
	s, _, worker := startUnreadTLS(t, n, func(o *settings.Options) { o.MaxOutbound = 1 << 20 })
	body := strings.Repeat("x", 12<<20)
	for i := range n {
		worker.wantFrame("id", fmt.Sprint("j", i))
		worker.send(`{"action":"respond","body":"%s"}`, body)
		worker.wantFrame("ok", true)
		if i == 0 {
			eventually(t, "output waits", func() bool { _, sum, _ := s.Hub().Backlog(); return sum > 1<<20 })
		}
		if s.Hub().Stats().Overflows > 0 {
			break
		}
	}
	eventually(t, "the connection is closed", func() bool { return s.Counts().Conns == 1 })
	if n := s.Hub().Stats().Overflows; n != 1 {
		t.Errorf("%d connections were given up", n)
	}
}

// TestClosingTLSPeerHasLimitedTime: when the broker closes a TLS connection after its output, the
// peer has only a limited time to read that output.
func TestClosingTLSPeerHasLimitedTime(t *testing.T) {
	t.Parallel()
	s, submitter, worker := startUnreadTLS(t, 1, func(*settings.Options) {})
	worker.wantFrame("id", "j0")
	worker.send(`{"action":"respond","body":"%s"}`, strings.Repeat("x", 12<<20))
	worker.wantFrame("ok", true)
	_, _ = submitter.Write([]byte{255, 255, 255, 255}) // the length of a frame that is too long
	eventually(t, "the connection is closed", func() bool { return s.Counts().Conns == 1 })
}

// TestTLSMemoryIsBounded: TLS connections may use a share of the memory. A connection beyond that share
// is closed; the others stay open.
func TestTLSMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 3
	s := startServer(t, func(o *settings.Options) {
		setCertificate(t, o)
		o.MaxMemory = limit * tlsIdleBytes * 8
	})
	var peers []*peer
	for range limit {
		p := dialTLS(t, s.SubmitAddr())
		p.send(`{"action":"ping"}`)
		p.wantFrame("ok", true)
		peers = append(peers, p)
	}
	if err := dialTLS(t, s.WorkerAddr()).Conn.(*tls.Conn).Handshake(); err == nil {
		t.Errorf("connection %d got in", limit+1)
	}
	peers[0].send(`{"action":"ping"}`)
	peers[0].wantFrame("ok", true)
	_ = peers[1].Close()
	eventually(t, "there is room", func() bool { return s.Counts().Conns == limit-1 })
	p := dialTLS(t, s.WorkerAddr())
	p.send(`{"action":"ping"}`)
	p.wantFrame("ok", true)
}
