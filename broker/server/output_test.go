package server

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyBigJobsAtOnce: more big bodies for one connection than the system
// takes pieces in one write.
func TestManyBigJobsAtOnce(t *testing.T) {
	s := begin(t, nil)
	submitter, worker := dial(t, s.SubmitAddr()), dial(t, s.WorkerAddr())
	const n = maxParts/2 + 100
	body := strings.Repeat("x", bigFrame)
	for i := range n {
		submitter.send(`{"action":"submit","id":"j%d","type":"t","body":"%s"}`, i, body)
		submitter.want("ok", true)
	}
	worker.send(`{"action":"join","type":"t","prefetch":%d}`, n)
	worker.want("ok", true)
	for i := range n {
		worker.want("id", fmt.Sprint("j", i))
	}
}
