//go:build race

package throwaway

// Race tells whether this program was built with the race detector.
const Race = true
