//go:build !race

package sim

const slow = false
