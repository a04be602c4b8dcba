//go:build race

package broker

// raceDetectorOn reports whether the race detector is on, which makes everything about ten times
// slower.
const raceDetectorOn = true

// repeats returns how often a random test is repeated: n times, or less often under the race
// detector.
func repeats(n uint64) uint64 { return (n + 9) / 10 }
