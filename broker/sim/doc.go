// Package sim drives the core with random peers and virtual time, and compares
// everything that the core does with a slow, obvious twin.
//
// A seed makes a run: a configuration, a population and a list of commands, some of them garbage.
// Each command goes to the core and to the oracle. The oracle is written from the protocol's text
// with sorted slices and linear scans, and shares no code with the core except the sums of ledgers.
// After each command the frames for every peer, the ledger of every type and the next deadline are
// compared; now and then everything else that can be read. Memory that the core gives back is
// poisoned, and memory that was lent to the core is overwritten before the next command.
//
// Where the protocol leaves a choice (the random part of a backoff, when an unused type
// is forgotten) the oracle checks that the core's choice is allowed and adopts it.
package sim
