//go:build race

package sim

// slow: the race detector makes everything ten times slower.
const slow = true
