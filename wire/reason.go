package wire

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxQuoted is how many bytes of an invalid value a reason repeats.
const maxQuoted = 64

// quoteShort returns an invalid value as reasons show it: verbatim, but shortened and as valid
// UTF-8.
func quoteShort(raw []byte) string {
	if len(raw) <= maxQuoted {
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	end := maxQuoted
	for end > maxQuoted-utf8.UTFMax && !utf8.RuneStart(raw[end]) {
		end--
	}
	return strings.ToValidUTF8(string(raw[:end]), "\uFFFD") + "… (" + strconv.Itoa(len(raw)) + " bytes)"
}

func refusal(code Code, id []byte, format string, args ...any) *Error {
	return &Error{Code: code, Reason: fmt.Sprintf(format, args...), ID: id}
}

func missingKeyError(v Verb, key Key, id []byte) *Error {
	return refusal(MissingField, id, "%s needs %s", v, key)
}
