//go:build !invariants

package broker

// Checking tells whether invariants are swept after each command.
const Checking = false

func (b *Broker) verify() {}

func scribble([]byte) {}
