// Package wire turns bytes into Gloom messages and messages into bytes.
//
// A frame is a 32-bit length in network byte order and that many bytes of
// JSON, one object. The package splits a stream into frames (SplitFrame), reads
// what a peer asks for (Decoder) and what a broker answers (ClientDecoder), and
// appends encoded frames to buffers. PROTOCOL.md beside this file describes the
// protocol, testdata/ holds frames that every client library must agree with.
//
// It keeps no state of a connection and knows no job: whether an id is taken, a
// worker busy or a hello late is for its callers to say. It never reads or
// writes a socket, and imports nothing else of this module.
package wire
