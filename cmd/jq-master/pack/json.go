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

func isSpecialKey(key []byte) bool {
	switch string(key) {
	case binKey, extKey, mapKey, floatKey, strKey:
		return true
	}
	return false
}

// AppendJSON appends a value as JSON. FromJSON converts this JSON back to the same value. The time
// is linear in the length of the value, however deep it is.
func AppendJSON(dst []byte, v Value) []byte {
	var flagBuf [32]bool
	w := jsonWriter{dst: dst, input: v, oddMaps: findOddMaps(flagBuf[:0], v)}
	w.value()
	return w.dst
}

// jsonWriter writes values as JSON, one after the other.
type jsonWriter struct {
	dst     []byte
	input   Value  // what is still to be written
	oddMaps []bool // for each map in input, in order, whether it cannot be a JSON object (see findOddMaps)
}

// value writes the first of the values.
func (w *jsonWriter) value() {
	h := readHead(w.input)
	switch h.kind {
	case Array:
		w.input = w.input[h.size:]
		w.dst = append(w.dst, '[')
		for range h.n {
			w.value()
			w.dst = append(w.dst, ',')
		}
		w.dst = closeList(w.dst, h.n, ']')
	case Map:
		w.input = w.input[h.size:]
		w.pairs(h.n)
	default:
		end := h.size + int(h.n)
		w.dst, w.input = appendScalar(w.dst, w.input[:end]), w.input[end:]
	}
}

// pairs writes a map of n pairs.
func (w *jsonWriter) pairs(n uint64) {
	odd := w.oddMaps[0]
	if w.oddMaps = w.oddMaps[1:]; !odd {
		w.dst = append(w.dst, '{')
		for range n {
			w.value()
			w.dst = append(w.dst, ':')
			w.value()
			w.dst = append(w.dst, ',')
		}
		w.dst = closeList(w.dst, n, '}')
		return
	}
	w.dst = append(w.dst, `{"$map":[`...)
	for range n {
		w.dst = append(w.dst, '[')
		w.value()
		w.dst = append(w.dst, ',')
		w.value()
		w.dst = append(w.dst, ']', ',')
	}
	w.dst = append(closeList(w.dst, n, ']'), '}')
}

// appendScalar appends a value that is neither an array nor a map.
func appendScalar(dst []byte, v Value) []byte {
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
		dst = strconv.AppendInt(append(dst, `{"$ext":[`...), int64(h.extType), 10)
		return append(appendBase64(append(dst, ','), v.Bytes()), ']', '}')
	}
	return append(dst, "null"...)
}

// closeList replaces the comma after the last of n items with the closing bracket.
func closeList(dst []byte, n uint64, bracket byte) []byte {
	if n > 0 {
		dst = dst[:len(dst)-1]
	}
	return append(dst, bracket)
}

// findOddMaps appends one entry for each map in a value, in order. The entry is true if the map cannot
// be written as a JSON object.
func findOddMaps(oddFlags []bool, v Value) []bool {
	var open [MaxDepth + replyDepth]struct {
		valuesLeft uint64 // how many values are still to come
		at         int    // for a map, its place in odd; for an array, -1
		one        bool   // it is a map of one pair
	}
	depth := 0
	for at := 0; at < len(v); {
		h := readHead(v[at:])
		at += h.size
		if depth > 0 {
			in := &open[depth-1]
			if in.at >= 0 && in.valuesLeft%2 == 0 && !oddFlags[in.at] { // a key
				oddFlags[in.at] = h.kind != String || !utf8.Valid(v[at:at+int(h.n)]) || in.one && isSpecialKey(v[at:at+int(h.n)])
			}
			in.valuesLeft--
		}
		switch h.kind {
		case Array:
			open[depth].valuesLeft, open[depth].at = h.n, -1
			depth++
		case Map:
			open[depth].valuesLeft, open[depth].at, open[depth].one = 2*h.n, len(oddFlags), h.n == 1
			oddFlags = append(oddFlags, false)
			depth++
		default:
			at += int(h.n)
		}
		for depth > 0 && open[depth-1].valuesLeft == 0 {
			depth--
		}
	}
	return oddFlags
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
