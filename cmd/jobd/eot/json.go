package eot

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"gloom/wire"
)

// The functions in this file require valid JSON.

// Member is one member of a JSON object: its name, and its value as written.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members returns the members of an object in order. If a name occurs several times, the last
// value counts, at the place of the first. It returns nil if the value is not an object.
func Members(raw json.RawMessage) []Member {
	if firstByte(raw) != '{' {
		return nil
	}
	var list []Member
	seen := make(map[string]int)
	eachValue(raw, func(name, value json.RawMessage) {
		m := Member{Name: String(name), Value: value}
		if at, index := seen[m.Name]; index {
			list[at] = m
			return
		}
		seen[m.Name] = len(list)
		list = append(list, m)
	})
	return list
}

// Elements returns the elements of an array, and nil for anything else.
func Elements(raw json.RawMessage) []json.RawMessage {
	if firstByte(raw) != '[' {
		return nil
	}
	list := []json.RawMessage{}
	eachValue(raw, func(_, value json.RawMessage) { list = append(list, value) })
	return list
}

// String returns the text of a JSON string, and "" for anything else.
func String(raw json.RawMessage) string {
	if firstByte(raw) != '"' {
		return ""
	}
	var text string
	_ = json.Unmarshal(raw, &text) // cannot fail: raw is valid JSON, and a string
	return text
}

// Integer returns the value of a JSON number that has no fraction; ok is false
// for anything else.
func Integer(raw json.RawMessage) (n Num, ok bool) {
	f, ok := parseNumber(raw)
	return Num(f), ok && !math.IsInf(f, 0) && f == math.Trunc(f)
}

// Number returns the value of a JSON number, 0 for anything else, and reports whether it is an
// integer.
func Number(raw json.RawMessage) (n Num, integer bool) {
	f, _ := parseNumber(raw)
	_, integer = Integer(raw)
	return Num(f), integer
}

// Int64 returns the value of a JSON number that is an integer of 64 bits. From 2^53 on it must be
// written without fraction and exponent; others are not exact.
func Int64(raw json.RawMessage) (n int64, ok bool) {
	if n, err := strconv.ParseInt(strings.Trim(string(raw), " \t\r\n"), 10, 64); err == nil {
		return n, true
	}
	f, ok := Integer(raw)
	return int64(f), ok && math.Abs(float64(f)) < 1<<53
}

// TypeOf names the type of a JSON value as JavaScript's typeof does: "object" (arrays and null
// too), "string", "number", "boolean", and "undefined" if there is no value.
func TypeOf(raw json.RawMessage) string {
	switch firstByte(raw) {
	case 0:
		return "undefined"
	case '{', '[', 'n':
		return "object"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	}
	return "number"
}

// IsArray reports whether the value is a JSON array.
func IsArray(raw json.RawMessage) bool { return firstByte(raw) == '[' }

// firstByte returns the first byte of a value, 0 if there is none.
func firstByte(raw json.RawMessage) byte {
	for _, c := range raw {
		if !isSpace(c) {
			return c
		}
	}
	return 0
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// IsTruthy reports whether JavaScript treats the value as true.
func IsTruthy(raw json.RawMessage) bool {
	switch firstByte(raw) {
	case 0, 'n', 'f':
		return false
	case '"':
		return String(raw) != ""
	case '{', '[', 't':
		return true
	}
	f, _ := parseNumber(raw)
	return f != 0
}

func parseNumber(raw json.RawMessage) (f float64, ok bool) {
	if c := firstByte(raw); c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	f, _ = strconv.ParseFloat(strings.Trim(string(raw), " \t\r\n"), 64) // out of range: infinite
	return f, true
}

// eachValue calls f with every name and value of an object, or with every value of an array.
func eachValue(raw json.RawMessage, f func(name, value json.RawMessage)) {
	i := skipSpace(raw, 0)
	object := raw[i] == '{'
	for i = skipSpace(raw, i+1); raw[i] != '}' && raw[i] != ']'; i = skipSpace(raw, i) {
		var name json.RawMessage
		if raw[i] == ',' {
			i = skipSpace(raw, i+1)
		}
		if object {
			end := afterValue(raw, i)
			name = raw[i:end:end]
			i = skipSpace(raw, skipSpace(raw, end)+1) // i is at the colon
		}
		end := afterValue(raw, i)
		f(name, raw[i:end:end])
		i = end
	}
}

func skipSpace(raw []byte, i int) int {
	for isSpace(raw[i]) {
		i++
	}
	return i
}

// afterValue returns the index after the value that starts at i.
func afterValue(raw []byte, i int) int {
	depth := 0
	for {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue // a value does not end here
		default:
			for i < len(raw) && strings.IndexByte(",:]} \t\n\r", raw[i]) < 0 {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// jsString returns the string to which JavaScript converts a value.
func jsString(raw json.RawMessage) string {
	if firstByte(raw) == 0 {
		return "undefined"
	}
	out, _ := appendText(nil, raw, skipSpace(raw, 0))
	return string(out)
}

// appendText appends the text of the value at i and returns the index after it. It reads every byte
// once, however deeply arrays are nested.
func appendText(dst, raw []byte, i int) ([]byte, int) {
	if raw[i] == '[' {
		for i = skipSpace(raw, i+1); raw[i] != ']'; i = skipSpace(raw, i) {
			switch raw[i] {
			case ',':
				dst = append(dst, ',')
				i++
			case 'n': // in an array, null becomes an empty string
				i += len("null")
			default:
				dst, i = appendText(dst, raw, i)
			}
		}
		return dst, i + 1
	}
	end := afterValue(raw, i)
	value := raw[i:end]
	switch raw[i] {
	case '{':
		dst = append(dst, "[object Object]"...)
	case '"':
		dst = append(dst, String(value)...)
	case 't', 'f', 'n':
		dst = append(dst, value...)
	default:
		f, _ := parseNumber(value)
		dst = append(dst, formatNumber(f)...)
	}
	return dst, end
}

// formatNumber formats a number as JavaScript does: without exponent between 1e-6 and 1e21,
// otherwise without leading zeros in the exponent.
func formatNumber(f float64) string {
	switch abs := math.Abs(f); {
	case math.IsInf(f, 0):
		return strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+") + "inity"
	case f == 0:
		return "0" // the result is never -0
	case abs >= 1e-6 && abs < 1e21:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	return mantissa + "e" + exponent[:1] + strings.TrimLeft(exponent[1:], "0")
}

// AppendString appends text as a JSON string; bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, text string) []byte {
	return append(wire.Canonical(append(dst, '"'), text), '"')
}

// FitString returns the length of the longest beginning of text that AppendString writes in at most
// room bytes, and how many bytes it writes, both without the quotes.
func FitString(text string, room int) (length, size int) {
	var buf [utf8.UTFMax + 2]byte
	for i, r := range text {
		n := utf8.RuneLen(r) // of U+FFFD, if bytes are not UTF-8
		if r < ' ' || r == '"' || r == '\\' {
			n = len(wire.Canonical(buf[:0], text[i:i+1]))
		}
		if size+n > room {
			return i, size
		}
		size += n
	}
	return len(text), size
}
