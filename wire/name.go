package wire

import (
	"unicode/utf16"
	"unicode/utf8"
)

// Ids and types are kept in canonical form: the content of a JSON string, without its
// quotes, in which only the quote, the backslash and characters below 0x20 are escaped,
// as \" \\ \b \t \n \f \r or \u00xx in lower case. Each value has exactly one canonical form,
// so comparing bytes compares values, and a name is sent by copying its bytes. A string without
// a backslash is already canonical.

const hexDigits = "0123456789abcdef"

// shortEscapes has, for each control character, the letter of its short escape, or 0.
var shortEscapes = [' ']byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r'}

// Canonical appends the canonical form of value to dst. Bytes that are not UTF-8 become
// U+FFFD.
func Canonical(dst []byte, value string) []byte {
	start := 0 // start of the part that needs no change
	for i := 0; i < len(value); {
		c := value[i]
		if c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			dst = append(dst, value[start:i]...)
			dst = appendByte(dst, c)
			i++
			start = i
			continue
		}
		r, n := utf8.DecodeRuneInString(value[i:])
		if r == utf8.RuneError && n == 1 {
			dst = append(dst, value[start:i]...)
			dst = append(dst, "\uFFFD"...)
			start = i + n
		}
		i += n
	}
	return append(dst, value[start:]...)
}

// CheckName returns why the broker would refuse value as an id or a type, or nil. A name must
// be UTF-8 of 1 to MaxNameBytes bytes. label names the key in the error.
func CheckName(label, value string) *Error {
	switch {
	case value == "":
		return &Error{Code: InvalidType, Reason: label + " must not be empty"}
	case len(value) > MaxNameBytes:
		return refusal(InvalidType, nil, "%s must be a string of 1 to %d bytes, %s has %d", label, MaxNameBytes, quoteShort([]byte(value)), len(value))
	case !utf8.ValidString(value):
		return refusal(InvalidType, nil, "%s must be UTF-8, not %s", label, quoteShort([]byte(value)))
	}
	return nil
}

// Value returns the string that a canonical form represents.
func Value(canonical []byte) string {
	for i, c := range canonical {
		if c == '\\' {
			buf, _ := appendValue(make([]byte, 0, len(canonical)), canonical, i)
			return string(buf)
		}
	}
	return string(canonical)
}

// appendByte appends the canonical form of an ASCII character.
func appendByte(dst []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(dst, '\\', c)
	case c >= ' ':
		return append(dst, c)
	case shortEscapes[c] != 0:
		return append(dst, '\\', shortEscapes[c])
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// appendValue appends the value of content, the text between the quotes of a JSON string. The
// first escape is at index i or later. complete is false if there is a lone surrogate, which
// becomes U+FFFD.
func appendValue(dst, content []byte, i int) (out []byte, complete bool) {
	complete = true
	dst = append(dst, content[:i]...)
	for i < len(content) {
		if content[i] != '\\' {
			dst = append(dst, content[i])
			i++
			continue
		}
		r, n := unescape(content[i:])
		if r < 0 {
			complete, r = false, utf8.RuneError
		}
		dst = utf8.AppendRune(dst, r)
		i += n
	}
	return dst, complete
}

// appendCanonical appends the canonical form of content, the text between the quotes of a valid
// JSON string, and counts the bytes of its value. complete is false if there is a lone surrogate.
func appendCanonical(dst, content []byte) (out []byte, size int, complete bool) {
	complete = true
	for i := 0; i < len(content); {
		if content[i] != '\\' {
			dst = append(dst, content[i])
			size++
			i++
			continue
		}
		r, n := unescape(content[i:])
		if r < 0 {
			complete, r = false, utf8.RuneError
		}
		if r < utf8.RuneSelf {
			dst = appendByte(dst, byte(r))
		} else {
			dst = utf8.AppendRune(dst, r)
		}
		size += utf8.RuneLen(r)
		i += n
	}
	return dst, size, complete
}

// unescape reads the escape at the start of s, which is valid, and returns its length;
// a pair of surrogates is one escape. For a lone surrogate it returns -1.
func unescape(s []byte) (r rune, n int) {
	switch s[1] {
	case 'b':
		return '\b', 2
	case 't':
		return '\t', 2
	case 'n':
		return '\n', 2
	case 'f':
		return '\f', 2
	case 'r':
		return '\r', 2
	case 'u':
		r = parseHex4(s[2:6])
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
			if pair := utf16.DecodeRune(r, parseHex4(s[8:12])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return -1, 6
	}
	return rune(s[1]), 2
}

func parseHex4(s []byte) (r rune) {
	for _, c := range s {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = (c | 0x20) - 'a' + 10
		}
		r = r<<4 | rune(c)
	}
	return r
}
