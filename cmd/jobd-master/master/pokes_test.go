package master

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRoundsKeepInterval(t *testing.T) {
	start := time.Unix(1000, 0)
	p := pokes{interval: 500 * time.Millisecond}
	steps := []struct {
		at     time.Duration
		target string
		wait   time.Duration
	}{
		{0, "a", 0},
		{0, "b", 500 * time.Millisecond},
		{100 * time.Millisecond, "a b c", 400 * time.Millisecond},
		{500 * time.Millisecond, "d", 0},
		{600 * time.Millisecond, "e", 400 * time.Millisecond},
		{5 * time.Second, "f", 0},
	}
	rounds := []string{"a", "b a c d", "e f"}
	for _, s := range steps {
		now := start.Add(s.at)
		wait, err := p.add(now, strings.Fields(s.target), nil)
		if err != nil || wait != s.wait {
			t.Fatalf("at %v: wait %v, error %v; want %v", s.at, wait, err, s.wait)
		}
		if wait == 0 {
			if got := strings.Join(p.beginRound(now), " "); got != rounds[0] {
				t.Fatalf("at %v: round of %q, want %q", s.at, got, rounds[0])
			}
			rounds = rounds[1:]
		}
	}
	if len(rounds) > 0 {
		t.Errorf("rounds that did not come: %v", rounds)
	}
}

func TestRememberedPokesAreBounded(t *testing.T) {
	var p pokes
	p.remembered.add(make([]string, maxPokes)...)
	if len(p.remembered.list) != 1 {
		t.Fatalf("one name is remembered %d times", len(p.remembered.list))
	}
	for i := range maxPokes - 1 {
		p.remembered.add(string(rune(i + 0x10000)))
	}
	served := func(name string) bool { return name == "served" }
	if _, err := p.add(time.Time{}, []string{"served", "one more"}, served); err == nil ||
		err.Error() != "too many poked targets have no worker (limit 65536)" {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"", "served", "served"} {
		if _, err := p.add(time.Time{}, []string{name}, served); err != nil {
			t.Errorf("%q, which is remembered or served: %v", name, err)
		}
	}
}

func TestNameSetKeepsOrder(t *testing.T) {
	var n nameSet
	n.add("toString", "a", "b", "__proto__", "a")
	if diff := cmp.Diff([]string{"a", "__proto__"}, n.remove([]string{"__proto__", "x", "a"})); diff != "" {
		t.Error(diff)
	}
	n.add("a", "b")
	if diff := cmp.Diff([]string{"toString", "b", "a"}, n.list); diff != "" {
		t.Error(diff)
	}
}
