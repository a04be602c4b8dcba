package eot

import (
	"bytes"
	"fmt"
)

// End is the byte after every message. It cannot occur inside one: JSON has it
// escaped in strings and allows it nowhere else.
const End = 0x04

// Splitter cuts a stream into messages. The zero value has no limit.
type Splitter struct {
	Max int // bytes of one message; 0 is no limit

	buf     []byte
	start   int // of the message that comes next
	scanned int // up to here there is no End behind start
}

// Feed takes the next bytes of the stream. It keeps no reference to them.
func (s *Splitter) Feed(p []byte) {
	if s.start > 0 && s.start >= len(s.buf)/2 {
		n := copy(s.buf, s.buf[s.start:])
		s.buf, s.scanned, s.start = s.buf[:n], s.scanned-s.start, 0
	}
	s.buf = append(s.buf, p...)
}

// Next returns the next message without its End; ok is false when more bytes
// are needed. The message is valid until the next Feed. The error says that
// the message at hand is longer than Max, whether it has ended or not: nothing
// after it can be read.
func (s *Splitter) Next() (message []byte, ok bool, err error) {
	i := bytes.IndexByte(s.buf[s.scanned:], End)
	if i < 0 {
		s.scanned = len(s.buf)
		if s.Max > 0 && len(s.buf)-s.start > s.Max {
			return nil, false, s.tooLong()
		}
		s.release()
		return nil, false, nil
	}
	end := s.scanned + i
	if s.Max > 0 && end-s.start > s.Max {
		return nil, false, s.tooLong()
	}
	message = s.buf[s.start:end]
	s.start, s.scanned = end+1, end+1
	return message, true, nil
}

// Buffered tells how many bytes of unfinished messages are held.
func (s *Splitter) Buffered() int { return len(s.buf) - s.start }

func (s *Splitter) tooLong() error {
	return fmt.Errorf("message is longer than %d bytes", s.Max)
}

// release lets go of the room that a long message took.
func (s *Splitter) release() {
	const keep = 64 << 10
	if s.start == len(s.buf) {
		s.buf, s.start, s.scanned = s.buf[:0], 0, 0
		if cap(s.buf) > keep {
			s.buf = nil
		}
	}
}
