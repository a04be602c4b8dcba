package load

import (
	"math/rand/v2"
	"testing"
)

func TestOutstandingFaults(t *testing.T) {
	b := outstanding{submitter: 3}
	first, _ := b.open(100)
	second, _ := b.open(200)

	if _, ok := b.ack(first); !ok {
		t.Fatal("the ack of a job that is due was refused")
	}
	if fault, ok := b.ack(first); ok || fault != Doubled {
		t.Errorf("second ack: %v, %v", fault, ok)
	}
	if sendTime, unacked, _, ok := b.close(first); !ok || unacked || sendTime != 100 {
		t.Errorf("answer: sent %d, unacked %v, ok %v", sendTime, unacked, ok)
	}
	if _, _, fault, ok := b.close(first); ok || fault != Doubled {
		t.Errorf("second answer: %v, %v", fault, ok)
	}
	if _, unacked, _, ok := b.close(second); !ok || !unacked {
		t.Errorf("answer before its ack: unacked %v, ok %v", unacked, ok)
	}

	reused, _ := b.open(300) // takes a place that was used before
	if _, _, fault, ok := b.close(first); ok || fault != Doubled {
		t.Errorf("old answer while its place is taken again: %v, %v", fault, ok)
	}
	for name, c := range map[string]struct {
		n    Number
		want Fault
	}{
		"another submitter's": {makeNumber(4, reused.generation(), reused.slot()), Swapped},
		"a turn to come":      {makeNumber(3, reused.generation()+1, reused.slot()), Unknown},
		"a place never taken": {makeNumber(3, 1, 999), Unknown},
	} {
		if _, _, fault, ok := b.close(c.n); ok || fault != c.want {
			t.Errorf("%s: %v, %v, want %v", name, fault, ok, c.want)
		}
	}
	if b.count != 1 {
		t.Errorf("%d outstanding, want 1", b.count)
	}
	b.forget()
	if _, _, fault, ok := b.close(reused); ok || fault != Doubled || b.count != 0 {
		t.Errorf("after forgetting: %v, %v, %d outstanding", fault, ok, b.count)
	}
}

// TestOutstandingAgainstSet: outstanding agrees with a plain set, whatever the order of answers.
func TestOutstandingAgainstSet(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, seed))
	b := outstanding{submitter: 1}
	due := map[Number]int64{}
	var openNumbers []Number
	for i := range int64(50_000) {
		if rng.IntN(2) == 0 {
			n, ok := b.open(i)
			if _, twice := due[n]; !ok || twice {
				t.Fatalf("seed %d, step %d: %x given out twice", seed, i, n)
			}
			due[n] = i
			openNumbers = append(openNumbers, n)
		} else if len(openNumbers) > 0 {
			n := openNumbers[rng.IntN(len(openNumbers))]
			want, isDue := due[n]
			sendTime, _, fault, ok := b.close(n)
			if ok != isDue || ok && sendTime != want || !ok && fault != Doubled {
				t.Fatalf("seed %d, step %d: %x: %v (sent %d, %v), due %v (%d)", seed, i, n, ok, sendTime, fault, isDue, want)
			}
			delete(due, n)
		}
		if b.count != len(due) {
			t.Fatalf("seed %d, step %d: %d outstanding, want %d", seed, i, b.count, len(due))
		}
	}
}
