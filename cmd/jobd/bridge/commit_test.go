package bridge

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/testing/proxytest"
)

// startCommitCutter starts a proxy in front of the database. Instead of passing on the answer to every
// third commit, the proxy cuts the connection or, if reply is set, sends reply.
func startCommitCutter(t *testing.T, to string, reply []byte) (port int, cuts *atomic.Int64) {
	t.Helper()
	cuts = new(atomic.Int64)
	var commits atomic.Int64
	return proxytest.Start(t, to, func(net.Conn) (toServer, toClient proxytest.Filter, err error) {
		var cutting atomic.Bool // the client waits for the answer to each request
		return func(sent []byte) ([]byte, error) {
				if string(sent) == "\x07\x00\x00\x00\x03COMMIT" && commits.Add(1)%3 == 0 {
					cutting.Store(true)
				}
				return sent, nil
			}, func(answer []byte) ([]byte, error) {
				if !cutting.Swap(false) {
					return answer, nil
				}
				cuts.Add(1)
				if len(reply) == 0 {
					return nil, io.EOF
				}
				return reply, nil
			}, nil
	}).Port, cuts
}

// TestUnansweredCommitsRunNoRowTwice: the claims show what was committed. With two daemons, polls and
// runs by hand, no row runs twice or is left unfinished.
func TestUnansweredCommitsRunNoRowTwice(t *testing.T) {
	for name, reply := range map[string][]byte{
		"a cut":            nil,
		"what a proxy saw": []byte("\x18\x00\x00\x01\xff\xdd\x07#HY000Lost connection"),
	} {
		t.Run(name, func(t *testing.T) { testUnansweredCommits(t, reply) })
	}
}

func testUnansweredCommits(t *testing.T, reply []byte) {
	server := mariadbtest.Shared(t)
	c := &crashScenario{testSite: newTestSite(t, server), orphans: "fail"}
	const n = 150
	port, cuts := startCommitCutter(t, fmt.Sprintf("127.0.0.1:%d", server.Port()), reply)
	c.exec("INSERT INTO jobs (target) SELECT 'a' FROM seq_1_to_150")
	for _, name := range []string{crashOwner, crashPeer} {
		cfg := c.config(name, 3)
		cfg.MySQL.Port = port
		d := c.start(cfg)
		c.victims = append(c.victims, d)
		<-d.ready
	}
	eventually(t, "all is done", func() bool { return c.queryCount("SELECT COUNT(*) FROM jobs WHERE status <> 'done'") == 0 })
	c.awaitSettled()
	for id, runs := range c.runs() {
		if len(runs) != 1 {
			c.fail("row %d ran %d times", id, len(runs))
		}
	}
	if wrongCount := c.queryCount("SELECT COUNT(*) FROM jobs WHERE result <> 'ok' OR stdout <> CONCAT('out ', id, '\n')"); wrongCount > 0 || len(c.runs()) != n {
		c.fail("%d rows failed, %d ran", wrongCount, len(c.runs()))
	}
	t.Logf("%d commits without an answer", cuts.Load())
	if cuts.Load() < 20 {
		t.Errorf("%d commits were cut", cuts.Load())
	}
}
