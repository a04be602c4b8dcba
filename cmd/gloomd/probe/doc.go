// Package probe tests gloomd from outside as a fleet: real processes, a real
// nats-server, kills, freezes and cuts.
package probe
