package pack

import (
	"cmp"
	"iter"
	"math"
)

// Value is a value that Check has accepted, or a part of such a value; nil means no value.
type Value []byte

// Kind returns the kind of the value.
func (v Value) Kind() Kind {
	if len(v) == 0 {
		return None
	}
	return readHead(v).kind
}

// Len returns the number of items of an array, of pairs of a map, or of bytes of a string, bin or
// ext.
func (v Value) Len() int { return int(readHead(v).n) }

// Bytes returns the bytes of a string, bin or ext.
func (v Value) Bytes() []byte { return v[readHead(v).size:] }

// ExtType returns the type number of an ext.
func (v Value) ExtType() int8 { return readHead(v).extType }

// Bool returns the value of a Bool.
func (v Value) Bool() bool { return readHead(v).bits != 0 }

// IsNumber reports whether the value is an Int, a Uint or a Float.
func (v Value) IsNumber() bool { k := v.Kind(); return k == Int || k == Uint || k == Float }

// Number returns the number of an Int, a Uint or a Float.
func (v Value) Number() Number {
	h := readHead(v)
	return Number{h.kind, h.bits}
}

// Items iterates over the items of an array.
func (v Value) Items() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		h := readHead(v)
		rest := v[h.size:]
		for range h.n {
			var item Value
			if item, rest = Next(rest); !yield(item) {
				return
			}
		}
	}
}

// Pairs iterates over the pairs of a map, in order.
func (v Value) Pairs() iter.Seq2[Value, Value] {
	return func(yield func(k, v Value) bool) {
		h := readHead(v)
		rest := v[h.size:]
		for range h.n {
			var key, value Value
			key, rest = Next(rest)
			if value, rest = Next(rest); !yield(key, value) {
				return
			}
		}
	}
}

// Inner returns what follows the head of an array or a map: its values, one after the other, and
// whatever follows v. With it and Next, a value can be read in linear time, however deep it is:
// Items and Pairs read each value once more to find its end.
func (v Value) Inner() Value { return v[readHead(v).size:] }

// Next returns the first of the values in b. b must have been checked.
func Next(b Value) (first, rest Value) {
	at := 0
	for valuesLeft := uint64(1); valuesLeft > 0; valuesLeft-- {
		h := readHead(b[at:])
		switch at += h.size; h.kind {
		case Array:
			valuesLeft += h.n
		case Map:
			valuesLeft += 2 * h.n
		default:
			at += int(h.n)
		}
	}
	return b[:at:at], b[at:]
}

// Field returns the value of a string key of a map. If the key occurs several times, it is the last
// value; if there is none, or v is not a map, it is nil.
func (v Value) Field(key string) (found Value) {
	if v.Kind() != Map {
		return nil
	}
	for k, value := range v.Pairs() {
		if k.Is(key) {
			found = value
		}
	}
	return found
}

// Item returns item n of an array, counted from 0; nil if there is none.
func (v Value) Item(n int) Value {
	if v.Kind() != Array || n >= v.Len() {
		return nil
	}
	for item := range v.Items() {
		if n == 0 {
			return item
		}
		n--
	}
	return nil
}

// Is reports whether the value is the string s.
func (v Value) Is(s string) bool { return v.Kind() == String && string(v.Bytes()) == s }

// Number is a number, with its exact value and the kind that it was sent as.
type Number struct {
	kind Kind // Int, Uint or Float
	bits uint64
}

// Integer returns the number if it is an integer, or a float with an integral value, that fits into
// an int64.
func (n Number) Integer() (int64, bool) {
	switch n.kind {
	case Int:
		return int64(n.bits), true
	case Uint:
		return int64(n.bits), n.bits <= math.MaxInt64
	}
	f := n.Float()
	return int64(f), f == math.Trunc(f) && f >= -1<<63 && f < 1<<63
}

// Unsigned returns the number if it is an integer, or a float with an integral value, that fits
// into a uint64.
func (n Number) Unsigned() (uint64, bool) {
	switch n.kind {
	case Int:
		return n.bits, int64(n.bits) >= 0
	case Uint:
		return n.bits, true
	}
	f := n.Float()
	return uint64(f), f == math.Trunc(f) && f >= 0 && f < 1<<64
}

// Float returns the number as a float64, which may be rounded.
func (n Number) Float() float64 {
	switch n.kind {
	case Int:
		return float64(int64(n.bits))
	case Uint:
		return float64(n.bits)
	}
	return math.Float64frombits(n.bits)
}

// Compare compares the exact values of two numbers and returns -1, 0 or 1; ok is false if one is
// NaN.
func (n Number) Compare(m Number) (order int, ok bool) {
	switch {
	case n.kind == Float && m.kind == Float:
		a, b := n.Float(), m.Float()
		return cmp.Compare(a, b), a == a && b == b
	case n.kind == Float:
		order, ok = m.compareFloat(n.Float())
		return -order, ok
	case m.kind == Float:
		return n.compareFloat(m.Float())
	}
	return n.compareInteger(m), true
}

// compareInteger is Compare for two integers.
func (n Number) compareInteger(m Number) int {
	switch a, b := n.kind == Int && int64(n.bits) < 0, m.kind == Int && int64(m.bits) < 0; {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return cmp.Compare(n.bits, m.bits) // if the signs are equal, the two's complements have the order of the numbers
}

// compareFloat is Compare for an integer and a float.
func (n Number) compareFloat(f float64) (order int, ok bool) {
	switch {
	case f != f:
		return 0, false
	case f >= 1<<64:
		return -1, true
	case f < -1<<63:
		return 1, true
	}
	integer := math.Trunc(f)
	m := Number{Uint, uint64(max(integer, 0))}
	if integer < 0 {
		m = Number{Int, uint64(int64(integer))}
	}
	if order = n.compareInteger(m); order == 0 {
		order = cmp.Compare(integer, f)
	}
	return order, true
}
