//go:build race

package throwaway

// Race is true if this program was built with the race detector.
const Race = true
