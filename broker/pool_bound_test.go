package broker

import (
	"fmt"
	"testing"
)

// TestPoolBytesAreBounded: the lists of types in joins may take up to an eighth of the limit on
// bytes. Beyond that, a join is refused and changes nothing. Equal sets are counted once, and
// all memory is given back.
func TestPoolBytesAreBounded(t *testing.T) {
	const limit = 32 << 20
	b := New(Config{MaxBytes: limit})
	join := func(w Peer, i int) []Effect {
		var types, except [][]byte
		for n := range 1000 {
			types = append(types, fmt.Appendf(nil, "%d-%0900d*", i, n))
			except = append(except, fmt.Appendf(nil, "%d-%0900d-*", i, n))
		}
		return b.Join(0, w, &JoinRequest{Types: types, Except: except})
	}
	before := heapInUse()
	var workers []Peer
	refusals := 0
	for i := range 20 {
		w := b.AddWorker()
		workers = append(workers, w)
		if effects := join(w, i); effects[0].Op == OpRefuse {
			refusals++
			if effects[0].Code != Overloaded || effects[0].Reason.Why != WhyTooManyPoolBytes {
				t.Fatalf("a join is refused with %v: %+v", effects[0].Code, effects[0].Reason)
			}
			if p := b.worker(w).pool; p != nil {
				t.Fatal("a worker whose join was refused serves a set")
			}
		}
	}
	if refusals == 0 || refusals == 20 {
		t.Fatalf("%d of 20 joins were refused", refusals)
	}
	if heapGrowth := heapInUse() - before; heapGrowth > limit/8*5/4 {
		t.Errorf("sets of types hold %d bytes, their share is %d", heapGrowth, limit/8)
	}
	if _, countedBytes := b.Usage(); countedBytes < b.poolBytes || b.Memory().Pools < b.poolBytes || b.poolBytes == 0 {
		t.Errorf("pools take %d bytes, %d count in all, Memory reports %d", b.poolBytes, countedBytes, b.Memory().Pools)
	}
	savedBytes := b.poolBytes
	// One more worker with an equal set costs no memory. A worker whose join is refused serves
	// the types that it served before.
	if effects := join(b.AddWorker(), 0); effects[0].Op != OpOK || b.poolBytes != savedBytes {
		t.Errorf("an equal set: %v, %d bytes more", effects[0].Op, b.poolBytes-savedBytes)
	}
	p := b.worker(workers[0]).pool
	if effects := join(workers[0], 99); effects[0].Op != OpRefuse || b.worker(workers[0]).pool != p || b.poolBytes != savedBytes {
		t.Errorf("a refused join changes something: %v", effects[0].Op)
	}
	for i := range b.peers.All() {
		b.RemovePeer(0, b.peerAt(i).id)
	}
	if b.poolBytes != 0 || b.Memory().Pools > b.pairs.HeldBytes() {
		t.Errorf("%d bytes are counted without workers", b.poolBytes)
	}
}
