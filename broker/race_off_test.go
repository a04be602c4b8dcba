//go:build !race

package broker

const raceDetectorOn = false

func repeats(n uint64) uint64 { return n }
