// Package shape puts a server under one shape of load for one round and
// returns the figures. It repeats nothing and compares nothing.
package shape
