package eot

import (
	"bytes"
	"fmt"
)

// End is the byte after every message. It cannot occur inside a message: JSON escapes
// it in strings and allows it nowhere else.
const End = 0x04

// Splitter splits a stream into messages. The zero value has no limit.
type Splitter struct {
	MaxMessage int // maximum size of a message in bytes; 0 for no limit

	input        []byte   // bytes that Next has not read yet
	pieces       [][]byte // the beginning of an unfinished message; all pieces but the last are full
	heldBytes    int      // bytes in pieces
	heldCapacity int      // bytes of memory that pieces use
}

// minPiece and maxPiece bound the size of the pieces of an unfinished message. Pieces are never
// moved; each is as large as all before it, within these limits.
const (
	minPiece = 1 << 10
	maxPiece = 256 << 10
)

// Feed sets the next bytes of the stream. They must not change until Next has returned false.
func (s *Splitter) Feed(p []byte) { s.input = p }

// Next returns a copy of the next message, without its End; ok is false if more bytes are needed.
// The error says that the current message is longer than MaxMessage; no message after it can be
// read.
func (s *Splitter) Next() (message []byte, ok bool, err error) {
	end := bytes.IndexByte(s.input, End)
	part := s.input
	if end >= 0 {
		part = s.input[:end]
	}
	if n := s.heldBytes + len(part); s.MaxMessage > 0 && n > s.MaxMessage {
		return nil, false, fmt.Errorf("message is longer than %d bytes", s.MaxMessage)
	}
	if end < 0 {
		s.keepPiece(part)
		s.input = nil
		return nil, false, nil
	}
	message = make([]byte, 0, s.heldBytes+len(part))
	for _, part := range s.pieces {
		message = append(message, part...)
	}
	message = append(message, part...)
	s.input = s.input[end+1:]
	s.pieces, s.heldBytes, s.heldCapacity = nil, 0, 0
	return message, true, nil
}

func (s *Splitter) keepPiece(part []byte) {
	for len(part) > 0 {
		last := len(s.pieces) - 1
		if last < 0 || len(s.pieces[last]) == cap(s.pieces[last]) {
			size := min(max(s.heldCapacity, minPiece), maxPiece)
			s.pieces = append(s.pieces, make([]byte, 0, size))
			s.heldCapacity += size
			last++
		}
		n := min(len(part), cap(s.pieces[last])-len(s.pieces[last]))
		s.pieces[last] = append(s.pieces[last], part[:n]...)
		s.heldBytes += n
		part = part[n:]
	}
}

// HeldBytes returns how many bytes of memory an unfinished message takes.
func (s *Splitter) HeldBytes() int { return s.heldCapacity }
