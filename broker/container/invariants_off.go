//go:build !invariants

package container

// InvariantsEnabled reports whether invariants are checked: the build tag invariants is set.
const InvariantsEnabled = false

func overwrite([]byte) {}
