//go:build !invariants

package container

// Checking reports whether invariants are checked, which the build tag invariants turns on.
const Checking = false

func scribble([]byte) {}
