//go:build race

package broker

// racing reports that the race detector is on, so that everything takes ten times as long.
const racing = true

// times is how often a random test is repeated: n, or fewer.
func times(n uint64) uint64 { return (n + 9) / 10 }
