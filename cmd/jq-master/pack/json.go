package pack

import (
	"encoding/base64"
	"math"
	"strconv"
	"unicode/utf8"

	"gloom/wire"
)

// Values that JSON lacks are written as objects with one of these keys: {"$bin":base64},
// {"$ext":[type,base64]}, {"$map":[[key,value],…]} for maps whose keys are not all UTF-8 strings,
// {"$float":"NaN"}, {"$str":base64} for strings that are not UTF-8. A map that would look like one
// of these objects is written as $map.
const (
	binKey   = "$bin"
	extKey   = "$ext"
	mapKey   = "$map"
	floatKey = "$float"
	strKey   = "$str"
)

func special(key []byte) bool {
	switch string(key) {
	case binKey, extKey, mapKey, floatKey, strKey:
		return true
	}
	return false
}

// AppendJSON appends a value as JSON. FromJSON converts this JSON back to the same value.
func AppendJSON(dst []byte, v Value) []byte {
	switch h := readHead(v); h.kind {
	case Bool:
		return strconv.AppendBool(dst, h.bits != 0)
	case Int:
		return strconv.AppendInt(dst, int64(h.bits), 10)
	case Uint:
		return strconv.AppendUint(dst, h.bits, 10)
	case Float:
		return appendFloat(dst, math.Float64frombits(h.bits))
	case String:
		if s := v.Bytes(); utf8.Valid(s) {
			return appendString(dst, s)
		}
		return append(appendBase64(append(dst, `{"$str":`...), v.Bytes()), '}')
	case Bin:
		return append(appendBase64(append(dst, `{"$bin":`...), v.Bytes()), '}')
	case Ext:
		dst = strconv.AppendInt(append(dst, `{"$ext":[`...), int64(h.typ), 10)
		return append(appendBase64(append(dst, ','), v.Bytes()), ']', '}')
	case Array:
		dst = append(dst, '[')
		for item := range v.Items() {
			dst = append(AppendJSON(dst, item), ',')
		}
		return closed(dst, h.n, ']')
	case Map:
		return appendMap(dst, v, h.n)
	}
	return append(dst, "null"...)
}

// closed replaces the comma after the last of n items with the closing bracket.
func closed(dst []byte, n uint64, bracket byte) []byte {
	if n > 0 {
		dst = dst[:len(dst)-1]
	}
	return append(dst, bracket)
}

func appendMap(dst []byte, v Value, n uint64) []byte {
	if odd(v, n) {
		dst = append(dst, `{"$map":[`...)
		for k, value := range v.Pairs() {
			dst = append(AppendJSON(append(dst, '['), k), ',')
			dst = append(AppendJSON(dst, value), ']', ',')
		}
		return append(closed(dst, n, ']'), '}')
	}
	dst = append(dst, '{')
	for k, value := range v.Pairs() {
		dst = append(appendString(dst, k.Bytes()), ':')
		dst = append(AppendJSON(dst, value), ',')
	}
	return closed(dst, n, '}')
}

// odd reports whether a map cannot be written as a JSON object.
func odd(v Value, n uint64) bool {
	for k := range v.Pairs() {
		if k.Kind() != String || !utf8.Valid(k.Bytes()) || n == 1 && special(k.Bytes()) {
			return true
		}
	}
	return false
}

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	return append(wire.Canonical(append(dst, '"'), s), '"')
}

// appendString is AppendString for a string that is valid UTF-8.
func appendString(dst, s []byte) []byte {
	for _, c := range s {
		if c < ' ' || c == '"' || c == '\\' {
			return AppendString(dst, string(s))
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

// appendFloat appends a float in a form that FromJSON reads as a float, not as an integer.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case f != f:
		return append(dst, `{"$float":"NaN"}`...)
	case math.IsInf(f, 1):
		return append(dst, `{"$float":"Inf"}`...)
	case math.IsInf(f, -1):
		return append(dst, `{"$float":"-Inf"}`...)
	case f == math.Trunc(f) && math.Abs(f) < 1e15:
		return strconv.AppendFloat(dst, f, 'f', 1, 64)
	case math.Abs(f) < 1e15: // the text has a point or an exponent
		return strconv.AppendFloat(dst, f, 'g', -1, 64)
	}
	return strconv.AppendFloat(dst, f, 'e', -1, 64)
}
