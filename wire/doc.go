// Package wire encodes and decodes Gloom messages.
//
// A frame is a 32-bit length in network byte order and that many bytes of JSON, one
// object. The package splits a stream into frames (SplitFrame), reads the requests of peers
// (Decoder) and the answers of a broker (ClientDecoder), and appends encoded frames to
// buffers. PROTOCOL.md in this directory describes the protocol; testdata/ has
// frames on which all client libraries must agree.
//
// The package keeps no state of connections or jobs: its callers decide whether an id is taken,
// a worker is busy or a hello is late. It never reads or writes a socket, and imports no other
// package of this module.
package wire
