package wire

import (
	"encoding/binary"
	"math/bits"
)

// The skip functions skip one JSON token or value. They return the index after it or, if the
// byte at index at is invalid, ^at, which is negative. If the payload ends too early, at is
// len(p).

const (
	ones     = 0x0101010101010101
	highBits = 0x8080808080808080
)

// skipString returns these bits. sawEscape says that the string has an escape. Any bit of
// sawNonASCII says that there is a byte above 0x7f in the string or among the seven bytes after it.
const (
	sawEscape   = 1
	sawNonASCII = highBits
)

// spaces holds a bit for each of the four characters that are white space in JSON.
const spaces = 1<<' ' | 1<<'\t' | 1<<'\n' | 1<<'\r'

func isSpace(c byte) bool { return c <= ' ' && spaces>>c&1 != 0 }

func skipSpace(p []byte, i int) int {
	for i < len(p) && isSpace(p[i]) {
		i++
	}
	return i
}

// stringStops sets the high bit of each byte of x that is a quote, a backslash or a control
// character. Only the lowest of these marks is certain: a borrow may leave false marks above
// it.
//
// Flipping bit 1 swaps the quote (0x22) with the space (0x20), so that one
// comparison with 0x21 finds control characters and the quote together.
func stringStops(x uint64) uint64 {
	low := (x ^ 0x02*ones) - 0x21*ones
	backslash := (x ^ 0x5c*ones) - ones
	return (low | backslash) &^ x & highBits
}

// skipString skips a string from index i, after the opening quote, and returns the index of the
// closing quote. It does not check bytes above 0x7f, but reports them in flags.
func skipString(p []byte, i int) (end int, flags uint64) {
	if len(p) >= longMessage {
		return skipAnyString(p, i)
	}
	var high, escapes uint64
	for {
		for len(p)-i >= 8 {
			x := binary.LittleEndian.Uint64(p[i:])
			high |= x
			if m := stringStops(x); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				goto stop
			}
			i += 8
		}
		for i < len(p) && p[i] >= ' ' && p[i] != '"' && p[i] != '\\' {
			high |= uint64(p[i])
			i++
		}
		if i == len(p) {
			return ^i, 0
		}
	stop:
		if p[i] == '"' {
			return i, high&sawNonASCII | escapes
		}
		if i = skipEscape(p, i); i < 0 {
			return i, 0
		}
		escapes = sawEscape
	}
}

const (
	// A message of longMessage bytes or more may have long strings. Only after longRun bytes
	// without an escape are four words of a string read at a time: in shorter strings that
	// would only cost time.
	longMessage = 4 << 10
	longRun     = 64
)

// skipAnyString is skipString for strings that may be long. The end of the loop is the same as
// in skipString: a shared function would make short messages slower by a twentieth.
func skipAnyString(p []byte, i int) (end int, flags uint64) {
	var high, escapes uint64
	for {
		for short := min(i+longRun, len(p)-8); i <= short; i += 8 {
			x := binary.LittleEndian.Uint64(p[i:])
			high |= x
			if m := stringStops(x); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				goto stop
			}
		}
		for ; len(p)-i >= 32; i += 32 {
			q := p[i : i+32]
			x0, x1 := binary.LittleEndian.Uint64(q), binary.LittleEndian.Uint64(q[8:])
			x2, x3 := binary.LittleEndian.Uint64(q[16:]), binary.LittleEndian.Uint64(q[24:])
			if stringStops(x0)|stringStops(x1)|stringStops(x2)|stringStops(x3) != 0 {
				break
			}
			high |= x0 | x1 | x2 | x3
		}
		for i < len(p) && p[i] >= ' ' && p[i] != '"' && p[i] != '\\' {
			high |= uint64(p[i])
			i++
		}
		if i == len(p) {
			return ^i, 0
		}
	stop:
		if p[i] == '"' {
			return i, high&sawNonASCII | escapes
		}
		if i = skipEscape(p, i); i < 0 {
			return i, 0
		}
		escapes = sawEscape
	}
}

// skipEscape skips an escape. p[i] should be its backslash.
func skipEscape(p []byte, i int) int {
	if p[i] != '\\' {
		return ^i
	}
	if i++; i == len(p) {
		return ^i
	}
	switch p[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		for end := i + 4; i < end; {
			i++
			if i >= len(p) || !isHex(p[i]) {
				return ^i
			}
		}
		return i + 1
	}
	return ^i
}

func isHex(c byte) bool {
	return c-'0' < 10 || (c|0x20)-'a' < 6
}

func isDigit(c byte) bool { return c-'0' < 10 }

// skipNumber skips a number. p[i] is a minus or a digit.
func skipNumber(p []byte, i int) int {
	if p[i] == '-' {
		i++
	}
	if i < len(p) && p[i] == '0' {
		i++
	} else if i = skipDigits(p, i); i < 0 {
		return i
	}
	if i < len(p) && p[i] == '.' {
		if i = skipDigits(p, i+1); i < 0 {
			return i
		}
	}
	if i < len(p) && p[i]|0x20 == 'e' {
		i++
		if i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		return skipDigits(p, i)
	}
	return i
}

// skipDigits requires at least one digit.
func skipDigits(p []byte, i int) int {
	start := i
	for i < len(p) && isDigit(p[i]) {
		i++
	}
	if i == start {
		return ^i
	}
	return i
}

// skipLiteral skips the literal word. Its first letter has been checked.
func skipLiteral(p []byte, i int, literal string) int {
	for k := 1; k < len(literal); k++ {
		if i+k >= len(p) || p[i+k] != literal[k] {
			return ^(i + k)
		}
	}
	return i + len(literal)
}

// skipAtom skips a number, true, false or null.
func skipAtom(p []byte, i int) int {
	switch c := p[i]; {
	case c == '-' || isDigit(c):
		return skipNumber(p, i)
	case c == 't':
		return skipLiteral(p, i, "true")
	case c == 'f':
		return skipLiteral(p, i, "false")
	case c == 'n':
		return skipLiteral(p, i, "null")
	}
	return ^i
}
