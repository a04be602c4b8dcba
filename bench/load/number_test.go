package load

import (
	"math/rand/v2"
	"testing"
)

func TestNumberText(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		sub, turn, slot := rng.Uint32N(MaxSubmitters), rng.Uint32N(1<<generationBits), rng.Uint32N(MaxOutstanding)
		n := makeNumber(sub, turn, slot)
		if n.Submitter() != int(sub) || n.generation() != turn || n.slot() != slot {
			t.Fatalf("number of %d, %d, %d reads as %d, %d, %d", sub, turn, slot, n.Submitter(), n.generation(), n.slot())
		}
		text := n.Append(nil)
		if parsed, ok := ParseNumber(text); !ok || parsed != n || len(text) != NumberLen {
			t.Fatalf("%x is written %q and read %x, %v", n, text, parsed, ok)
		}
	}
}

func TestParseNumberRefuses(t *testing.T) {
	for _, s := range []string{"", "0", "000000000000", "00000000000000", "000000000000 ", "00000000000w0", "000000000000A", "g000000000000",
		"v000000000000", "é00000000000"} {
		if n, ok := ParseNumber([]byte(s)); ok {
			t.Errorf("%q read as %x", s, n)
		}
	}
	if n, ok := ParseNumber([]byte("fvvvvvvvvvvvv")); !ok || n != 1<<64-1 {
		t.Errorf("the largest number read as %x, %v", n, ok)
	}
}
