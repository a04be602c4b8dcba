//go:build !invariants

package container

// Checking tells whether invariants are checked: the build tag of that name is set.
const Checking = false

func scribble([]byte) {}
