//go:build !invariants

package broker

func (b *Broker) checkInvariants() {}
