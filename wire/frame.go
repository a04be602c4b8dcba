package wire

import (
	"encoding/binary"
	"strconv"
)

const (
	// HeaderLen is the number of bytes before each payload: its length as an
	// unsigned 32-bit integer, most significant byte first.
	HeaderLen = 4
	// MaxNameBytes is the longest id or type, in bytes of UTF-8 after its escapes are resolved.
	MaxNameBytes = 1024
	// MaxDepth is the deepest nesting of a message. The message itself is level 1, so a body
	// may have MaxDepth-1 levels of arrays and objects.
	MaxDepth = 1024
)

// SplitFrame takes the first frame off buf. It returns the payload, which aliases buf,
// and the bytes used, header included. If used is 0 and there is no error, more bytes
// are needed. A length of more than max bytes is a SizeError at once, whatever follows it. A
// frame of length zero has an empty payload that is not nil; scanning it gives InvalidJSON.
func SplitFrame(buf []byte, max int) (payload []byte, used int, err *Error) {
	if len(buf) < HeaderLen {
		return nil, 0, nil
	}
	n := binary.BigEndian.Uint32(buf)
	if uint64(n) > uint64(max) {
		return nil, 0, &Error{Code: SizeError, Reason: "frame of " + strconv.FormatUint(uint64(n), 10) +
			" bytes, at most " + strconv.Itoa(max) + " are allowed"}
	}
	end := HeaderLen + int(n)
	if len(buf) < end {
		return nil, 0, nil
	}
	return buf[HeaderLen:end:end], end, nil
}
