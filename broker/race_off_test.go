//go:build !race

package broker

const racing = false

func times(n uint64) uint64 { return n }
