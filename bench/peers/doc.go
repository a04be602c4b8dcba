// Package peers holds the servers that can be measured: how each is started
// from the system's packages on private ports of the loopback interface, and
// how it is spoken to. Every driver is written with the same care: all requests
// of a round leave in one write, replies are parsed in place out of a large
// read, nothing waits for a reply that need not be waited for.
package peers
