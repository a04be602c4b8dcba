// Package peer implements connections with jobd's protocol: it listens and dials, checks passwords,
// calls the handlers of requests, and sends requests. jobd, jobd-master and jobctl differ only in
// the requests that they know.
//
// Everything is bounded: the number of connections, the size of a message, the waiting requests of
// a peer, and the bytes that a peer may leave unread.
package peer
