// Package wire turns bytes into Gloom messages and messages into bytes.
//
// A frame is a 32-bit length in network byte order and that many bytes of JSON, one
// object. The package splits a stream into frames (SplitFrame), reads requests of peers
// (Decoder) and answers of a broker (ClientDecoder), and appends encoded frames to
// buffers. PROTOCOL.md beside this file describes the protocol; testdata/ has frames
// with which every client library must agree.
//
// It keeps no state of a connection and knows no job: its callers decide whether an id
// is taken, a worker busy or a hello late. It never reads or writes a socket, and
// imports nothing else of this module.
package wire
