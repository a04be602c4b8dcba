// Package peers has the servers that can be measured: how each is started from the
// system's packages on private loopback ports, and how it is spoken to. Every driver is
// written with the same care: all requests of a round leave in one write, replies are
// parsed in place from a large read, and a driver waits only for replies that it needs.
package peers
