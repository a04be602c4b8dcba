package journal

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"gloom/cmd/serverlessd/job"
)

const (
	segmentSuffix = ".journal"
	badSuffix     = ".bad"
	// markEvery is the least distance, in bytes, between records of a segment whose offset is
	// remembered.
	markEvery = 64 << 10
	// readAhead is the number of bytes of a file that are read at once.
	readAhead = 256 << 10
)

// segment is a file of records.
type segment struct {
	name string
	file File
	// salt is a random text in all records of this segment. Clients do not know it, so none of
	// their lines can look like such a record. It is "" if an earlier version wrote the segment.
	salt string
	// endRefused says that bytes after the end were refused. On the disk, only the next segment says
	// so.
	endRefused bool

	// The journal's mu guards the following.
	readableTo    int64 // bytes before this offset may be read
	reservedTo    int64 // no bytes from this offset on have been reserved
	storedTo      int64 // bytes before this offset are in a store
	stored        []span
	setAsideSpans []span // jobs that were set aside
	marks         []mark

	// The following are used for a segment of an earlier process, until its content is known.
	loaded bool
	jobs   map[string]Count
}

// span is a piece of a segment.
type span struct{ from, to int64 }

// mark is the offset of a record, and the first id in it.
type mark struct {
	offset int64
	id     job.ID
}

func (s *segment) id() job.ID { return job.ID(strings.TrimSuffix(s.name, segmentSuffix)) }

func (s *segment) addMark(at int64, id job.ID) {
	if n := len(s.marks); id != "" && (n == 0 || at-s.marks[n-1].offset >= markEvery) {
		s.marks = append(s.marks, mark{at, id})
	}
}

// finish records that a piece is in a store.
func (s *segment) finish(from, to int64) {
	s.stored = append(s.stored, span{from, to})
	slices.SortFunc(s.stored, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	spans := s.stored[:1]
	for _, d := range s.stored[1:] {
		if last := &spans[len(spans)-1]; d.from <= last.to {
			last.to = max(last.to, d.to)
		} else {
			spans = append(spans, d)
		}
	}
	if s.stored = spans; spans[0].from <= s.storedTo {
		s.storedTo = max(s.storedTo, spans[0].to)
		s.stored = spans[1:]
	}
}

// setAside records that a damaged piece will not be in a store.
func (s *segment) setAside(piece span) {
	if n := len(s.setAsideSpans); n == 0 || s.setAsideSpans[n-1] != piece {
		s.setAsideSpans = append(s.setAsideSpans, piece)
	}
}

// isStored reports whether the whole piece is in stores.
func (s *segment) isStored(from, to int64) bool {
	return to <= s.storedTo || slices.ContainsFunc(s.stored, func(d span) bool { return max(from, s.storedTo) >= d.from && to <= d.to })
}

// scan calls visit for everything between from and to, that is, for records and for the broken
// pieces between them. It stops when visit returns false. visit may keep its arguments.
func (s *segment) scan(from, to int64, visit func(at int64, r record, state recordState) bool) error {
	at := from
	isAfterDamage := false // the last piece was damaged, so at may be inside a record
	var buf []byte         // the bytes of the file from at on
	for at < to {
		r, state := parse(buf)
		if len(buf) == 0 || state == recordShort && at+int64(len(buf)) < to {
			want := max(int64(readAhead), 2*int64(len(buf)), int64(r.size))
			var err error
			if buf, err = s.read(at, min(want, to-at)); err != nil {
				return err
			}
			continue
		}
		if state == recordWhole && isAfterDamage && !s.hasSaltOf(&r) {
			state = recordBroken
		}
		if isAfterDamage = state != recordWhole; isAfterDamage {
			next, err := s.resume(at, to, int64(r.size))
			if err != nil || !visit(at, record{size: int(next - at)}, state) {
				return err
			}
			at, buf = next, nil
			continue
		}
		if !visit(at, r, recordWhole) {
			return nil
		}
		at += int64(r.size)
		buf = buf[r.size:]
	}
	return nil
}

// hasSaltOf reports whether a record has the salt of this segment.
func (s *segment) hasSaltOf(r *record) bool {
	return r.hasChecksum && (s.salt == "" || r.salt == s.salt)
}

// readSalt reads the segment's salt.
func (s *segment) readSalt() error {
	return s.scan(0, s.readableTo, func(_ int64, r record, state recordState) bool {
		s.salt = r.salt
		return state != recordWhole
	})
}

// resume returns where the next record after a broken one begins. Lines of clients may look like
// records, but do not have the salt. In a segment without a salt, resume skips the lines of a
// broken record if the size in its header leads to its end.
func (s *segment) resume(at, to, size int64) (int64, error) {
	if s.salt == "" && size > 0 && at+size <= to {
		if tail, err := s.read(at+size-int64(len(batchTrailer)), int64(len(batchTrailer))); err != nil {
			return 0, err
		} else if string(tail) == batchTrailer {
			return at + size, nil
		}
	}
	pattern := []byte(batchHeader)
	for at++; at < to; {
		buf, err := s.read(at, min(4*readAhead, to-at))
		if err != nil {
			return 0, err
		}
		for i := bytes.Index(buf, pattern); i >= 0; {
			ok, err := s.hasRecordAt(at+int64(i), to)
			if ok || err != nil {
				return at + int64(i), err
			}
			next := bytes.Index(buf[i+1:], pattern)
			if next < 0 {
				break
			}
			i += 1 + next
		}
		if at+int64(len(buf)) >= to {
			break
		}
		at += int64(len(buf) - len(pattern))
	}
	return to, nil
}

// hasRecordAt reports whether there is a whole record with this segment's salt at an offset.
func (s *segment) hasRecordAt(at, to int64) (bool, error) {
	for want := int64(maxHeader); ; {
		buf, err := s.read(at, min(want, to-at))
		if err != nil {
			return false, err
		}
		r, state := parse(buf)
		if state != recordShort || at+want >= to {
			return state == recordWhole && s.hasSaltOf(&r), nil
		}
		if r.size > 0 && r.salt != s.salt {
			return false, nil // the rest need not be read
		}
		want = max(2*want, int64(r.size))
	}
}

// read returns n bytes. Bytes after the end of the file are returned as zeros, which count as
// damage. If the disk does not return bytes of the file, this is an error, and does not count as
// damage.
func (s *segment) read(at, n int64) ([]byte, error) {
	buf := make([]byte, n)
	if got, err := s.file.ReadAt(buf, at); int64(got) < n && err != nil && err != io.EOF {
		return nil, fmt.Errorf("segment %s: %w", s.name, err)
	}
	return buf, nil
}

// findEnd returns where a segment of an earlier process ends. The end is after the last complete
// request. Records of an incomplete request at the end of the file are cut off, but damage is not.
// size is the size of the file.
func (s *segment) findEnd(size int64) (int64, error) {
	size, err := s.trimZeros(size)
	if err != nil {
		return 0, err
	}
	complete := true  // the last request
	var request int64 // where it begins
	end := size
	err = s.scan(0, size, func(at int64, r record, state recordState) bool {
		switch {
		case state == recordShort && at+int64(r.size) == size:
			end = at
		case state != recordWhole:
			complete = true
		default:
			if complete {
				request = at
			}
			complete = r.extra == 0
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	if end < size { // a record with an end mark was not cut short
		last, err := s.read(max(0, size-int64(len(batchTrailer))), min(size, int64(len(batchTrailer))))
		if err != nil || string(last) == batchTrailer {
			return size, err
		}
	}
	if !complete {
		end = request
	}
	return end, nil
}

func (s *segment) trimZeros(size int64) (int64, error) {
	for size > 0 {
		n := min(size, readAhead)
		buf, err := s.read(size-n, n)
		if err != nil {
			return 0, err
		}
		if length := len(bytes.TrimRight(buf, "\x00")); length > 0 {
			return size - n + int64(length), nil
		}
		size -= n
	}
	return 0, nil
}
