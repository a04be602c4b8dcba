package runner

import (
	"bytes"
	"regexp"
	"strconv"

	"gloom/cmd/serverlessd/job"
)

// followLines holds the J: lines of a run.
type followLines struct {
	lines    []job.Line
	badLines int
}

func (f *followLines) count() int { return len(f.lines) + f.badLines }

// cutFollow returns the text after the J: of a line, and whether the line has a J:.
func cutFollow(line []byte) (rest []byte, ok bool) {
	return bytes.CutPrefix(bytes.TrimPrefix(line, []byte("#")), []byte("J: "))
}

// add parses what follows the J:, "type|payload", in which the payload may have at most max bytes.
// It returns false if the line is not valid; the line then makes no job.
func (f *followLines) add(rest []byte, max int) bool {
	typ, payload, ok := bytes.Cut(rest, []byte("|"))
	if !ok || len(payload) > max || job.CheckType(string(typ)) != nil || isTimestamp(string(typ)) {
		f.badLines++
		return false
	}
	f.lines = append(f.lines, job.Line{Type: string(typ), Payload: bytes.Clone(payload)})
	return true
}

var (
	datePattern   = regexp.MustCompile(`^\d{4}-\d\d-\d\d(T[\d:.]+(Z|[+-]\d\d:?\d\d)?)?$`)
	millisPattern = regexp.MustCompile(`^\d{10,13}$`)
)

// isTimestamp reports whether a type looks like a time. Lines of other programs may have a time in
// this place.
func isTimestamp(s string) bool { return datePattern.MatchString(s) || millisPattern.MatchString(s) }

// status parses "STATUS[ data]".
func status(line []byte) (status int, data []byte, ok bool) {
	word, data, _ := bytes.Cut(line, []byte(" "))
	n, err := strconv.ParseUint(string(word), 10, 16)
	if err != nil || len(word) != 3 {
		return 0, nil, false
	}
	return int(n), data, true
}
