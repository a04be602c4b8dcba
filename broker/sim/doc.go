// Package sim drives the core with random peers and virtual time, and compares
// all that it does with a slow, obvious twin.
//
// A seed makes a run: a configuration, a population and a list of commands,
// some of them garbage. Each command goes to the core and to the oracle, which
// is written from the protocol's text with sorted slices and linear scans and
// shares no code with the core but the adding up of ledgers. After each one the frames for every peer, the
// ledger of every type and the next deadline are compared; now and then all
// else that can be looked at. Memory that the core gives back is poisoned, and
// whatever it was lent is scribbled over before the next command.
//
// Where the protocol leaves room (the random part of a backoff, when a type
// that nobody uses is forgotten) the oracle checks that the core's choice is
// allowed and adopts it.
package sim
