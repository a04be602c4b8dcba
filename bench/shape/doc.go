// Package shape puts a server under one shape of load for one round and returns the figures. It
// does not repeat rounds or compare servers.
package shape
