package matcher

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/pack"
)

// operand is a value in a matcher, with which values of jobs are compared.
type operand struct {
	pack.Value
	canonical []byte
}

func operandOf(v pack.Value) operand { return operand{bytes.Clone(v), appendCanonical(nil, v)} }

// equals reports whether a value equals the operand. Values of different types are unequal.
func (o *operand) equals(v pack.Value) bool {
	switch order, ok := o.compare(v); {
	case ok:
		return order == 0
	case v.IsNumber(), v.Kind() != o.Kind():
		return false
	}
	return bytes.Equal(appendCanonical(nil, bytes.Clone(v)), o.canonical) // a clone, so that v itself does not escape to the heap
}

// compare compares a value with the operand, if both are numbers or both are strings. ok is false
// for other values, and for NaN, which have no order.
func (o *operand) compare(v pack.Value) (order int, ok bool) {
	switch {
	case v.IsNumber() && o.IsNumber():
		return v.Number().Compare(o.Number())
	case v.Kind() == pack.String && o.Kind() == pack.String:
		return bytes.Compare(v.Bytes(), o.Bytes()), true
	}
	return 0, false
}

// appendCanonical appends the canonical form of a value, which is the same for equal values. Equal
// numbers have one form. The pairs of a map are sorted by key, and only the last of several pairs
// with the same key is kept.
func appendCanonical(dst []byte, v pack.Value) []byte {
	if len(v) == 0 {
		return dst
	}
	dst, _ = canonical(dst, v)
	return dst
}

// canonical is appendCanonical for the first of several values. It returns the others, too.
func canonical(dst []byte, b pack.Value) ([]byte, pack.Value) {
	switch b.Kind() {
	case pack.Array:
		dst = msgp.AppendArrayHeader(dst, uint32(b.Len()))
		rest := b.Inner()
		for range b.Len() {
			dst, rest = canonical(dst, rest)
		}
		return dst, rest
	case pack.Map:
		return canonicalMap(dst, b)
	}
	v, rest := pack.Next(b)
	switch v.Kind() {
	case pack.Int, pack.Uint, pack.Float:
		return appendNumber(dst, v.Number()), rest
	case pack.String:
		return msgp.AppendStringFromBytes(dst, v.Bytes()), rest
	case pack.Bin:
		return msgp.AppendBytes(dst, v.Bytes()), rest
	case pack.Ext:
		dst = binary.BigEndian.AppendUint32(append(dst, ext32), uint32(v.Len()))
		return append(append(dst, byte(v.ExtType())), v.Bytes()...), rest
	}
	return append(dst, v...), rest
}

// ext32 begins an ext with a length of four bytes.
const ext32 = 0xc9

func canonicalMap(dst []byte, b pack.Value) ([]byte, pack.Value) {
	type pair struct{ key, text []byte }
	n, rest, from := b.Len(), b.Inner(), len(dst)
	ends := make([]int, 0, 2*n) // where each key and each value in dst ends
	for range 2 * n {
		dst, rest = canonical(dst, rest)
		ends = append(ends, len(dst))
	}
	pairs, at := make([]pair, n), from
	for i := range pairs {
		pairs[i] = pair{dst[at:ends[2*i]], dst[at:ends[2*i+1]]}
		at = ends[2*i+1]
	}
	slices.Reverse(pairs) // reversed, so that the stable sort puts the last of equal keys first
	slices.SortStableFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	pairs = slices.CompactFunc(pairs, func(a, b pair) bool { return bytes.Equal(a.key, b.key) })
	sorted := msgp.AppendMapHeader(make([]byte, 0, 5+len(dst)-from), uint32(len(pairs)))
	for _, p := range pairs {
		sorted = append(sorted, p.text...)
	}
	return append(dst[:from], sorted...), rest
}

func appendNumber(dst []byte, n pack.Number) []byte {
	if integer, ok := n.Integer(); ok && integer < 0 {
		return msgp.AppendInt64(dst, integer)
	}
	if integer, ok := n.Unsigned(); ok {
		return msgp.AppendUint64(dst, integer)
	}
	f := n.Float()
	if f != f {
		f = math.NaN()
	}
	return msgp.AppendFloat64(dst, f)
}
