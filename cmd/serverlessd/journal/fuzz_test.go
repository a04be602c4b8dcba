package journal

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
)

// memory is a read-only File in memory.
type memory struct {
	File
	bytes *bytes.Reader
}

func (m memory) ReadAt(p []byte, at int64) (int, error) { return m.bytes.ReadAt(p, at) }

// FuzzScan: for any bytes in a segment, a scan ends and covers every byte once, and a complete
// record has the same bytes when it is encoded again.
func FuzzScan(f *testing.F) {
	r := record{date: time.UnixMilli(1767225600123), jobtype: "a-x", firstID: job.NewIDSource("0seven", time.Now).Next(1), count: 2,
		due: time.UnixMilli(1767225700456), delay: 100_333 * time.Millisecond, extra: 1, body: []byte("one\ntwo\x00\xff\n")}
	first := record{firstID: r.firstID, prev: "p", prevEnd: 7}
	goodRecord := first.appendTo(nil)
	goodRecord = r.appendTo(goodRecord)
	r.salt = "SALT"
	salted := (&record{firstID: r.firstID, salt: r.salt}).appendTo(nil)
	salted = r.appendTo(salted)
	f.Add(goodRecord)
	f.Add(append(salted, goodRecord[1:]...))
	f.Add(append(bytes.Repeat([]byte{0}, 10), goodRecord...))
	f.Add(append(goodRecord, "id|a-x|payload\n\n#:Batch bytes=2,jobtype=a-x\nz\n#:EndBatch\n"...))
	f.Add([]byte("#:Batch bytes=99999999999,jobtype=a-x\nz\n#:EndBatch\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &segment{file: memory{bytes: bytes.NewReader(data)}, readableTo: int64(len(data))}
		if err := s.readSalt(); err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		err := s.scan(0, int64(len(data)), func(offset int64, r record, f recordState) bool {
			if offset != at || r.size <= 0 {
				t.Fatalf("a piece of %d bytes at %d, after one that ended at %d", r.size, offset, at)
			}
			at += int64(r.size)
			if f != recordWhole {
				return true
			}
			if n := countLines(r.body); n != r.count {
				t.Fatalf("%d lines, told %d", n, r.count)
			}
			parsed, f := parse(r.appendTo(nil))
			if f != recordWhole || parsed.jobtype != r.jobtype || parsed.firstID != r.firstID || parsed.count != r.count || !bytes.Equal(parsed.body, r.body) ||
				parsed.extra != r.extra || parsed.delay != r.delay || parsed.salt != r.salt || parsed.prev != r.prev || r.prev != "" && parsed.prevEnd != r.prevEnd {
				if len(r.prev)+len(r.salt) < maxHeader/2 { // if they are longer, the header may become too long
					t.Fatalf("%+v is %+v when it is encoded again", r, parsed)
				}
			}
			return true
		})
		if err != nil || at != int64(len(data)) {
			t.Fatalf("ended at %d of %d: %v", at, len(data), err)
		}
		end, err := s.findEnd(int64(len(data)))
		if err != nil || end < 0 || end > int64(len(data)) {
			t.Fatalf("the end is at %d of %d: %v", end, len(data), err)
		}
	})
}

// TestShortRecords: a record that is cut off anywhere is parsed as short, never as broken or whole.
func TestShortRecords(t *testing.T) {
	r := record{date: time.Now(), jobtype: "a-x", firstID: job.NewIDSource("0seven", time.Now).Next(1), count: 2, body: []byte("one\ntwo\n")}
	goodRecord := r.appendTo(nil)
	for n := range goodRecord {
		if _, f := parse(goodRecord[:n]); f != recordShort {
			t.Fatalf("%d bytes of %d are %d", n, len(goodRecord), f)
		}
	}
	if got, f := parse(append(goodRecord, "x"...)); f != recordWhole || got.size != len(goodRecord) || fmt.Sprint(got.firstID, got.jobtype) != fmt.Sprint(r.firstID, r.jobtype) {
		t.Fatalf("%d %+v", f, got)
	}
}
