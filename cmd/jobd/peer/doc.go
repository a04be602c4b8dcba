// Package peer keeps connections that speak jobd's protocol: it listens and dials,
// checks passwords, gives requests to their handlers, and makes requests of its own.
// jobd, jobd-master and jobctl differ only in the requests that they know.
//
// Everything is bounded: the connections, a message, the requests of one peer that wait
// for their answers, and the bytes that a peer may leave unread.
package peer
