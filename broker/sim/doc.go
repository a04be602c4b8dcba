// Package sim drives the core with random peers and virtual time, and compares
// everything that the core does with a slow and simple model, the oracle.
//
// A seed determines a run: a configuration, a population of peers and a list of commands, some
// of them garbage. Each command goes to the core and to the oracle. The oracle is written from
// the protocol's text with sorted slices and linear scans, and shares no code with the core
// except the sums of ledgers. After each command the frames for every peer, the ledger of every
// type and the next deadline are compared; sometimes also everything else that can be read.
// Memory that the core returns is poisoned, and memory that was lent to the core is overwritten
// before the next command.
//
// Brokers of a fleet are peers, too: borrowers get jobs, lenders lend some. Rates are judged by
// their definition, from the times at which jobs started. The memory that the core counts is
// compared with the pages that it holds.
//
// The protocol leaves some choices to the broker, such as the random part of a backoff, or the time
// at which an unused type is forgotten. There the oracle checks that the core's choice is allowed,
// and adopts the choice.
package sim
