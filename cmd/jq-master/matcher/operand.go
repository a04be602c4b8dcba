package matcher

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/pack"
)

// operand is one side of a comparison: an attribute of a job, or a MessagePack value.
type operand struct {
	kind   pack.Kind
	number pack.Number
	truth  bool
	name   string // the text of a string that is not in MessagePack; in a matcher, of any string
	bytes  []byte // the content of a bin, an ext, or a string in MessagePack
	typ    int8   // of an ext
	raw    pack.Value
	// canonical is the canonical form of an array or map. Only a matcher's operand has it.
	canonical []byte
}

func operandOf(v pack.Value) operand {
	o := operand{kind: v.Kind(), raw: v}
	switch o.kind {
	case pack.Int, pack.Uint, pack.Float:
		o.number = v.Number()
	case pack.Bool:
		o.truth = v.Bool()
	case pack.Ext:
		o.typ = v.ExtType()
		o.bytes = v.Bytes()
	case pack.String, pack.Bin:
		o.bytes = v.Bytes()
	}
	return o
}

// wanted returns the operand of a value in a matcher. Unlike operandOf, it also sets name and
// canonical.
func wanted(v pack.Value) operand {
	o := operandOf(v)
	switch o.kind {
	case pack.String:
		o.name = string(o.bytes)
	case pack.Array, pack.Map:
		o.canonical = appendCanonical(nil, v)
	}
	return o
}

func (o *operand) isNumber() bool {
	return o.kind == pack.Int || o.kind == pack.Uint || o.kind == pack.Float
}

func (o *operand) string() string {
	if o.bytes == nil {
		return o.name
	}
	return string(o.bytes)
}

func (o *operand) matches(re *regexp.Regexp) bool {
	if o.bytes == nil {
		return re.MatchString(o.name)
	}
	return len(o.bytes) <= MaxRegexText && re.Match(o.bytes)
}

// equals reports whether the operand equals that of a matcher. Values of different types are
// unequal.
func (o *operand) equals(want *operand) bool {
	switch {
	case o.isNumber() && want.isNumber():
		order, ok := o.number.Compare(want.number)
		return ok && order == 0
	case o.kind != want.kind:
		return false
	}
	switch o.kind {
	case pack.Bool:
		return o.truth == want.truth
	case pack.String:
		return o.compareText(want) == 0
	case pack.Bin:
		return bytes.Equal(o.bytes, want.bytes)
	case pack.Ext:
		return o.typ == want.typ && bytes.Equal(o.bytes, want.bytes)
	case pack.Array:
		return o.raw.Len() == want.raw.Len() && bytes.Equal(appendCanonical(nil, o.raw), want.canonical)
	case pack.Map:
		return o.raw.Len() >= want.raw.Len() && bytes.Equal(appendCanonical(nil, o.raw), want.canonical)
	}
	return true // null
}

func (o *operand) compareText(want *operand) int {
	if o.bytes == nil {
		return strings.Compare(o.name, want.name)
	}
	return bytes.Compare(o.bytes, want.bytes)
}

// compare compares two numbers or two strings. ok is false for other values, which have no order.
func (o *operand) compare(want *operand) (order int, ok bool) {
	switch {
	case o.isNumber() && want.isNumber():
		return o.number.Compare(want.number)
	case o.kind == pack.String && want.kind == pack.String:
		return o.compareText(want), true
	}
	return 0, false
}

// appendCanonical appends the canonical form of a value, which is the same for equal values. Equal
// numbers have one form. The pairs of a map are sorted by key, and only the last of several pairs
// with the same key is kept.
func appendCanonical(dst []byte, v pack.Value) []byte {
	switch v.Kind() {
	case pack.Int, pack.Uint, pack.Float:
		return appendNumber(dst, v.Number())
	case pack.String:
		return msgp.AppendStringFromBytes(dst, v.Bytes())
	case pack.Bin:
		return msgp.AppendBytes(dst, v.Bytes())
	case pack.Ext:
		dst, _ = msgp.AppendExtension(dst, &msgp.RawExtension{Type: v.ExtType(), Data: v.Bytes()})
		return dst
	case pack.Array:
		dst = msgp.AppendArrayHeader(dst, uint32(v.Len()))
		for item := range v.Items() {
			dst = appendCanonical(dst, item)
		}
		return dst
	case pack.Map:
		return appendCanonicalMap(dst, v)
	}
	return append(dst, v...)
}

func appendCanonicalMap(dst []byte, v pack.Value) []byte {
	type pair struct {
		key   []byte
		value pack.Value
	}
	pairs := make([]pair, 0, v.Len())
	for k, value := range v.Pairs() {
		pairs = append(pairs, pair{appendCanonical(nil, k), value})
	}
	slices.Reverse(pairs) // so that the stable sort puts the last of equal keys first
	slices.SortStableFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	pairs = slices.CompactFunc(pairs, func(a, b pair) bool { return bytes.Equal(a.key, b.key) })
	dst = msgp.AppendMapHeader(dst, uint32(len(pairs)))
	for _, p := range pairs {
		dst = appendCanonical(append(dst, p.key...), p.value)
	}
	return dst
}

func appendNumber(dst []byte, n pack.Number) []byte {
	if whole, ok := n.Integer(); ok && whole < 0 {
		return msgp.AppendInt64(dst, whole)
	}
	if whole, ok := n.Unsigned(); ok {
		return msgp.AppendUint64(dst, whole)
	}
	f := n.Float()
	if f != f {
		f = math.NaN()
	}
	return msgp.AppendFloat64(dst, f)
}
