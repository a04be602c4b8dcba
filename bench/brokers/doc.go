// Package brokers has the brokers that can be measured, Gloom among them. It starts each of them from the system's
// packages, on private loopback ports, and speaks its protocol. Every driver is written to the same
// standard: all requests of a round are sent in one write, replies are parsed in place from a large
// read, and a driver waits only for replies that it needs.
package brokers
