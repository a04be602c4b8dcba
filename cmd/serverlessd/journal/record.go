package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"gloom/cmd/serverlessd/job"
)

const (
	batchHeader  = "#:Batch "
	batchTrailer = "#:EndBatch\n"
	timeLayout   = "2006-01-02T15:04:05.000Z"
	maxHeader    = 4096 // bytes, newline included
	// A request with more lines or bytes is written as several records. So no record is too large
	// to be read again, and damage to one loses only a part.
	maxLines = 1000
	maxBytes = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is a batch of lines, or a single line without a batch around it.
type record struct {
	date    time.Time // when the record was accepted; zero: unknown
	jobtype string    // "" in the record that begins a segment
	firstID job.ID    // "" if the record has none
	count   int
	due     time.Time     // when the jobs are due, by this host's clock; zero: at once
	delay   time.Duration // time from date to due, in whole milliseconds; 0 if due was given as a time
	extra   int           // how many records of the same request follow
	salt    string        // the salt of its segment
	body    []byte        // lines, each with its newline

	prev    string // name of the segment before; only in the first record of a segment
	prevEnd int64  // where that segment ends

	size        int  // bytes of the whole record
	hasChecksum bool // its checksum is right
}

// appendTo appends the record in the journal's format.
func (r *record) appendTo(b []byte) []byte {
	start := len(b)
	b = append(b, batchHeader+"date="...)
	b = r.date.UTC().AppendFormat(b, timeLayout)
	b = append(b, ",bytes="...)
	b = strconv.AppendInt(b, int64(len(r.body)), 10)
	if r.jobtype != "" {
		b = append(append(b, ",jobtype="...), r.jobtype...)
	}
	b = append(append(b, ",id="...), r.firstID...)
	b = append(b, ",count="...)
	b = strconv.AppendInt(b, int64(r.count), 10)
	if !r.due.IsZero() {
		b = append(b, ",dt="...)
		b = r.due.UTC().AppendFormat(b, timeLayout)
	}
	if r.delay > 0 {
		b = append(b, ",delay="...)
		b = strconv.AppendInt(b, r.delay.Milliseconds(), 10)
	}
	if r.extra > 0 {
		b = append(b, ",more="...)
		b = strconv.AppendInt(b, int64(r.extra), 10)
	}
	if r.prev != "" {
		b = append(append(b, ",prev="...), r.prev...)
		b = append(b, ",end="...)
		b = strconv.AppendInt(b, r.prevEnd, 10)
	}
	if r.salt != "" {
		b = append(append(b, ",salt="...), r.salt...)
	}
	crc := checksum(b[start:], r.body)
	b = append(append(b, ",crc="...), crc...)
	b = append(append(b, '\n'), r.body...)
	return append(b, batchTrailer...)
}

// checksum returns the checksum of a record as text.
func checksum(head, body []byte) string {
	var sum [crc32.Size]byte
	binary.BigEndian.PutUint32(sum[:], crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body))
	return hex.EncodeToString(sum[:])
}

// recordState says what parse has found.
type recordState int

const (
	recordWhole  recordState = iota
	recordShort              // the record continues after the end of the bytes
	recordBroken             // the bytes are not a record
)

// parse reads the record at the beginning of b. For a broken record, the size is the one in its
// header, or 0.
func parse(b []byte) (r record, state recordState) {
	if len(b) > 0 && b[0] != '#' {
		return parseLine(b)
	}
	head, rest, ok := bytes.Cut(b[:min(len(b), maxHeader)], []byte{'\n'})
	switch {
	case !bytes.HasPrefix(b, []byte(batchHeader)) && !bytes.HasPrefix([]byte(batchHeader), b):
		return r, recordBroken
	case !ok && len(b) < maxHeader:
		return r, recordShort
	case !ok, bytes.IndexByte(head, 0) >= 0: // zeros may have replaced fields, even the checksum
		return r, recordBroken
	}
	bodyLen, crc, ok := r.parseHeader(head)
	if !ok {
		return r, recordBroken
	}
	start := len(b[:min(len(b), maxHeader)]) - len(rest)
	if bodyLen > len(b)-start-len(batchTrailer) {
		r.size = start + bodyLen + len(batchTrailer)
		return r, recordShort
	}
	r.body = b[start : start+bodyLen : start+bodyLen]
	if string(b[start+bodyLen:start+bodyLen+len(batchTrailer)]) != batchTrailer {
		return record{}, recordBroken
	}
	r.size = start + bodyLen + len(batchTrailer)
	lines := countLines(r.body)
	switch {
	case r.count >= 0 && r.count != lines,
		crc != "" && crc != checksum(head[:len(head)-len(",crc=")-len(crc)], r.body):
		return record{size: r.size}, recordBroken
	}
	r.count, r.hasChecksum = lines, crc != ""
	return r, recordWhole
}

// parseHeader parses a header without its newline. A count of -1 means that the header has none.
func (r *record) parseHeader(head []byte) (bodyLen int, crc string, ok bool) {
	r.count, bodyLen = -1, -1
	fields := string(head[len(batchHeader):])
	for fields != "" {
		field, rest, _ := strings.Cut(fields, ",")
		key, value, found := strings.Cut(field, "=")
		if !found || crc != "" {
			return 0, "", false
		}
		fields = rest
		var err error
		switch key {
		case "date":
			r.date, _ = time.Parse(time.RFC3339Nano, value)
		case "bytes":
			bodyLen, err = parseNatural(value)
		case "jobtype":
			if r.jobtype = value; !validJobtype(value) {
				return 0, "", false
			}
		case "id":
			r.firstID, _ = job.ParseID(value)
		case "count":
			r.count, err = parseNatural(value)
		case "dt":
			r.due, _ = time.Parse(time.RFC3339Nano, value)
		case "delay":
			var ms int
			ms, err = parseNatural(value)
			r.delay = time.Duration(ms) * time.Millisecond
		case "more":
			r.extra, err = parseNatural(value)
		case "prev":
			r.prev = value
		case "salt":
			r.salt = value
		case "end":
			var n int
			n, err = parseNatural(value)
			r.prevEnd = int64(n)
		case "crc":
			if crc = value; len(crc) != 8 {
				return 0, "", false
			}
		}
		if err != nil {
			return 0, "", false
		}
	}
	return bodyLen, crc, bodyLen >= 0 && (r.jobtype != "" || bodyLen == 0)
}

// parseLine parses a line without a batch, `id|jobtype|payload`, or an empty line.
func parseLine(b []byte) (r record, state recordState) {
	line, _, ok := bytes.Cut(b, []byte{'\n'})
	if !ok {
		return r, recordShort
	}
	if len(line) == 0 {
		return record{size: 1}, recordWhole
	}
	id, rest, ok := bytes.Cut(line, []byte{'|'})
	jobtype, payload, ok2 := bytes.Cut(rest, []byte{'|'})
	if !ok || !ok2 || !validJobtype(string(jobtype)) {
		return r, recordBroken
	}
	r.size = len(line) + 1
	r.jobtype = string(jobtype)
	r.firstID, _ = job.ParseID(string(id))
	r.body = b[r.size-1-len(payload) : r.size : r.size]
	r.count = countLines(r.body)
	return r, recordWhole
}

func validJobtype(s string) bool {
	client, typ, ok := job.SplitJobtype(s)
	return ok && job.CheckClient(client) == nil && job.CheckType(typ) == nil
}

// countLines counts the lines that are not empty. The last line may lack its newline.
func countLines(body []byte) (n int) {
	for range linesOf(body) {
		n++
	}
	return n
}

func linesOf(body []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(body) > 0 {
			line, rest, _ := bytes.Cut(body, []byte{'\n'})
			body = rest
			if len(line) > 0 && !yield(line) {
				return
			}
		}
	}
}

func parseNatural(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 40)
	return int(n), err
}
