//go:build race

package broker

// racing reports whether the race detector is on, which makes everything about ten times
// slower.
const racing = true

// times returns how often a random test is repeated: n times, or less often under the race
// detector.
func times(n uint64) uint64 { return (n + 9) / 10 }
