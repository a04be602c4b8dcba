package broker

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLetterListAgainstSort compares a letterList with a sorted list, while letters are added at the end and
// removed anywhere.
func TestLetterListAgainstSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var s letterList
	var sorted []*letter
	number := 0
	for step := range scaleDown(200_000, 20_000) {
		grows := step/10_000%2 == 0
		if n := rng.IntN(10); len(sorted) == 0 || grows && n < 8 || n < 2 {
			number += 1 + rng.IntN(3)
			l := &letter{DeadLetter: DeadLetter{Number: number}}
			s.add(l)
			sorted = append(sorted, l)
		} else {
			i := 0
			if rng.IntN(3) > 0 {
				i = rng.IntN(len(sorted))
			}
			s.remove(sorted[i])
			sorted = slices.Delete(sorted, i, i+1)
		}
		at := rng.IntN(number + 2)
		var from, before *letter
		for _, l := range sorted {
			if l.Number < at {
				before = l
			} else {
				from = l
				break
			}
		}
		if step%16 == 0 && (s.firstFrom(at) != from || s.lastBefore(at) != before) || s.n != len(sorted) {
			t.Fatalf("step %d: of %d letters, %d on the shelf, it finds %v and %v beside %d, not %v and %v", step, len(sorted), s.n, s.lastBefore(at), s.firstFrom(at), at, before, from)
		}
		if len(s.blocks) > 4+4*len(sorted)/maxBlockLetters {
			t.Fatalf("step %d: %d blocks for %d letters", step, len(s.blocks), len(sorted))
		}
	}
}
