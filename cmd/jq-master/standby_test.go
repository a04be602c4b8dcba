package main

import (
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
)

// TestMasterWithoutBrokerYields: a master whose broker is away leaves its lease to a standby that
// reaches a broker. Without such a standby, the master keeps the lease and accepts jobs.
func TestMasterWithoutBrokerYields(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	ownBroker, otherBroker := startShared(t, nil), startShared(t, nil)
	first := start(t, append(brokerFlags(ownBroker), "--redis", server.URL(), "--broker-wait", "1s")...)
	second := launch(t, append(brokerFlags(otherBroker), "--redis", server.URL(), "--broker-wait", "1s")...)
	a, b := first.client(t, jsonType), second.client(t, jsonType)
	otherBroker.Close()
	eventually(t, "the standby says that it has no broker", func() bool {
		return server.Do(t, "ZCARD", "jq:{default}:standbys") == int64(0)
	})
	ownBroker.Close()
	eventually(t, "the first knows that its broker is away", func() bool { return a.do("GET", "/readyz", "").status == 503 })
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		a.enqueue(`{"name":"n","argument":{}}`) // the job is still accepted, because the standby reaches no broker, either
	}
	job := a.enqueue(`{"name":"late","argument":{}}`)
	startShared(t, otherBroker)
	second.waitUntilReady()
	if got := b.pull(b.register(`{"name":"w","max_jobs":1,"names":["late"]}`), 1); len(got) != 1 || got[0] != job {
		t.Errorf("pulled %v, want %v", got, job)
	}
	a.do("POST", "/job", `{"name":"n","argument":{}}`).wantRefusal(503, "standby", "")
	startShared(t, ownBroker) // the return of its broker does not give the first master the lease
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		b.enqueue(`{"name":"n","argument":{}}`)
	}
}
