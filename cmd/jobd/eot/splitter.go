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
	Max int // maximum number of bytes of one message; 0 for no limit

	fed  []byte   // bytes that Next has not read yet
	held [][]byte // the beginning of an unfinished message; all pieces but the last are full
	len  int      // bytes in held
	cap  int      // bytes of memory that held uses
}

// Sizes of the pieces of an unfinished message. Pieces are never moved; each is as large as all
// before it, within these limits.
const (
	minPiece = 1 << 10
	maxPiece = 256 << 10
)

// Feed sets the next bytes of the stream. They must not change until Next has returned false.
func (s *Splitter) Feed(p []byte) { s.fed = p }

// Next returns a copy of the next message, without its End; ok is false if more bytes are needed.
// The error says that the current message is longer than Max; no message after it can be read.
func (s *Splitter) Next() (message []byte, ok bool, err error) {
	end := bytes.IndexByte(s.fed, End)
	part := s.fed
	if end >= 0 {
		part = s.fed[:end]
	}
	if n := s.len + len(part); s.Max > 0 && n > s.Max {
		return nil, false, fmt.Errorf("message is longer than %d bytes", s.Max)
	}
	if end < 0 {
		s.keep(part)
		s.fed = nil
		return nil, false, nil
	}
	message = make([]byte, 0, s.len+len(part))
	for _, part := range s.held {
		message = append(message, part...)
	}
	message = append(message, part...)
	s.fed = s.fed[end+1:]
	s.held, s.len, s.cap = nil, 0, 0
	return message, true, nil
}

func (s *Splitter) keep(part []byte) {
	for len(part) > 0 {
		last := len(s.held) - 1
		if last < 0 || len(s.held[last]) == cap(s.held[last]) {
			size := min(max(s.cap, minPiece), maxPiece)
			s.held = append(s.held, make([]byte, 0, size))
			s.cap += size
			last++
		}
		n := min(len(part), cap(s.held[last])-len(s.held[last]))
		s.held[last] = append(s.held[last], part[:n]...)
		s.len += n
		part = part[n:]
	}
}

// Held returns how many bytes of memory an unfinished message takes.
func (s *Splitter) Held() int { return s.cap }
