// Package pack reads and writes MessagePack without decoding it as a whole: it decodes only the
// values that are read, so all others can be passed on byte for byte. It never allocates memory for
// a length that is only announced. It also converts values to JSON and back.
package pack

import (
	"encoding/binary"
	"math"

	"gloom/cmd/jq-master/job"
)

// MaxDepth limits the nesting of values. A map in an array has depth 2.
const MaxDepth = 100

// replyDepth is by how much the nesting of a reply may exceed MaxDepth: a reply has values that came
// in a body of their own, within lists of maps.
const replyDepth = 8

// Kind is the kind of a value.
type Kind uint8

// A value is of one of these kinds. The zero Kind is None, which means that there is no value.
const (
	None Kind = iota
	Nil
	Bool
	Int // negative, or encoded as signed
	Uint
	Float
	String
	Bin
	Ext
	Array
	Map
)

var kindNames = [...]string{"nothing", "null", "boolean", "integer", "integer", "number", "string", "bin", "ext", "array", "map"}

func (k Kind) String() string { return kindNames[k] }

// head holds what the first bytes of a value say about the value.
type head struct {
	kind    Kind
	size    int    // bytes of the head; for a scalar, of the whole value
	n       uint64 // the number of bytes after the head of a string, bin or ext, of items of an array, or of pairs of a map
	bits    uint64 // the bits of an integer or float64; for a boolean 0 or 1
	extType int8   // of an ext
}

// truncated is the kind that readHead returns for an incomplete head.
const truncated = Map + 1

// readHead reads the head of a value. Its kind is None for the byte 0xc1, with which no value
// begins.
func readHead(b []byte) head {
	if len(b) == 0 {
		return head{kind: truncated}
	}
	first := b[0]
	switch {
	case first < 0x80:
		return head{kind: Uint, size: 1, bits: uint64(first)}
	case first < 0x90:
		return head{kind: Map, size: 1, n: uint64(first & 15)}
	case first < 0xa0:
		return head{kind: Array, size: 1, n: uint64(first & 15)}
	case first < 0xc0:
		return head{kind: String, size: 1, n: uint64(first & 31)}
	case first >= 0xe0:
		return head{kind: Int, size: 1, bits: uint64(int64(int8(first)))}
	}
	f := headForms[first-0xc0]
	if len(b) < int(f.size) {
		return head{kind: truncated}
	}
	h := head{kind: f.kind, size: int(f.size)}
	x := number(b[1 : 1+f.width])
	switch f.kind {
	case Bool:
		h.bits = uint64(first & 1)
	case Uint:
		h.bits = x
	case Int:
		shift := 64 - 8*uint(f.width)
		h.bits = uint64(int64(x<<shift) >> shift)
	case Float:
		if h.bits = x; f.width == 4 {
			h.bits = math.Float64bits(float64(math.Float32frombits(uint32(x))))
		}
	case Ext:
		h.n, h.extType = x, int8(b[f.size-1])
		if f.width == 0 {
			h.n = 1 << (first - 0xd4)
		}
	default:
		h.n = x
	}
	return h
}

// number reads a big-endian number of 0, 1, 2, 4 or 8 bytes.
func number(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// headForms describes the heads that begin with 0xc0 to 0xdf: the size of the head, and the width of
// the number after its first byte.
var headForms = [32]struct {
	kind        Kind
	size, width uint8
}{
	{Nil, 1, 0}, {None, 1, 0}, {Bool, 1, 0}, {Bool, 1, 0},
	{Bin, 2, 1}, {Bin, 3, 2}, {Bin, 5, 4},
	{Ext, 3, 1}, {Ext, 4, 2}, {Ext, 6, 4},
	{Float, 5, 4}, {Float, 9, 8},
	{Uint, 2, 1}, {Uint, 3, 2}, {Uint, 5, 4}, {Uint, 9, 8},
	{Int, 2, 1}, {Int, 3, 2}, {Int, 5, 4}, {Int, 9, 8},
	{Ext, 2, 0}, {Ext, 2, 0}, {Ext, 2, 0}, {Ext, 2, 0}, {Ext, 2, 0},
	{String, 2, 1}, {String, 3, 2}, {String, 5, 4},
	{Array, 3, 2}, {Array, 5, 4},
	{Map, 3, 2}, {Map, 5, 4},
}

// Check returns nil if b is exactly one value that is nested at most MaxDepth deep. Otherwise it
// returns a Fault with the code invalid_body that says why not.
func Check(b []byte) *job.Fault {
	v, fault := splitFirst(b)
	if fault == nil && len(v) < len(b) {
		return invalid("%d bytes follow the value, which ends at byte %d", len(b)-len(v), len(v))
	}
	return fault
}

func invalid(format string, args ...any) *job.Fault {
	return job.Refuse(job.InvalidBody, "", "the body is not valid MessagePack: "+format, args...)
}

// splitFirst returns the value at the beginning of b.
func splitFirst(b []byte) (Value, *job.Fault) {
	var open [MaxDepth]uint64 // for each depth, how many values the open array or map still lacks
	depth, at := 0, 0
	for {
		h := readHead(b[at:])
		bytesLeft := uint64(len(b) - at - h.size)
		switch {
		case h.kind == truncated:
			return nil, invalid("it is cut short at byte %d", len(b))
		case h.kind == None:
			return nil, invalid("byte %d is 0xc1, which begins no value", at)
		case h.kind == Array || h.kind == Map:
			n := h.n
			if h.kind == Map {
				n *= 2
			}
			if n > bytesLeft {
				return nil, invalid("the %s at byte %d announces %d values, but %d bytes are left", h.kind, at, n, bytesLeft)
			}
			if depth == MaxDepth {
				return nil, invalid("it is nested deeper than %d at byte %d", MaxDepth, at)
			}
			at += h.size
			open[depth] = n
			depth++
		case h.n > bytesLeft:
			return nil, invalid("the %s at byte %d announces %d bytes, but %d are left", h.kind, at, h.n, bytesLeft)
		default:
			at += h.size + int(h.n)
			if depth > 0 {
				open[depth-1]--
			}
		}
		for depth > 0 && open[depth-1] == 0 {
			if depth--; depth > 0 {
				open[depth-1]--
			}
		}
		if depth == 0 {
			return b[:at:at], nil
		}
	}
}
