package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/journal"

	"github.com/rs/zerolog"
)

// newFilledDisk returns a disk with one segment of ten requests, each with one line, and the ends
// of the segment's records.
func newFilledDisk(t *testing.T) (d *disk, name string, ends []int) {
	t.Helper()
	d = newDisk()
	j := open(t, d)
	for i := range 10 {
		add(t, j, batch("a-x", fmt.Sprint(i)))
	}
	j.Close()
	name = j.Segments()[0]
	data := d.names[name].data
	for at := 0; at < len(data); {
		at += bytes.Index(data[at:], []byte("\n#:EndBatch\n")) + len("\n#:EndBatch\n")
		ends = append(ends, at)
	}
	if len(ends) != 11 { // the first is the end of the segment's first record
		t.Fatalf("%d records", len(ends))
	}
	return d, name, ends
}

func lines(entries []Entry) (s string) {
	for _, e := range entries {
		s += string(e.Payload)
	}
	return s
}

func TestDamagedRecordsAreSkipped(t *testing.T) {
	for _, c := range []struct {
		name         string
		change       func(data []byte, ends []int) []byte
		want         string
		badFileCount int  // files
		cut          bool // the segment was cut
	}{
		{"none", func(d []byte, _ []int) []byte { return d }, "0123456789", 0, false},
		{"a line in the middle", func(d []byte, e []int) []byte { d[e[5]-13] ^= 1; return d }, "012356789", 1, false},
		{"the last line", func(d []byte, e []int) []byte { d[e[10]-13] ^= 1; return d }, "012345678", 1, false},
		{"a header", func(d []byte, e []int) []byte { d[e[4]+3] ^= 1; return d }, "012356789", 1, false},
		{"a number of bytes", func(d []byte, e []int) []byte {
			at := e[4] + bytes.Index(d[e[4]:], []byte("bytes=2"))
			d[at+6] = '9'
			return d
		}, "012356789", 1, false},
		{"zeros in a header", func(d []byte, e []int) []byte {
			from := e[4] + bytes.Index(d[e[4]:], []byte("id=")) + 3
			clear(d[from : from+bytes.IndexByte(d[from:], '\n')])
			return d
		}, "012356789", 1, false},
		{"a checksum", func(d []byte, e []int) []byte { d[e[4]+bytes.Index(d[e[4]:], []byte("crc="))+4] = 'x'; return d }, "012356789", 1, false},
		{"two records", func(d []byte, e []int) []byte { clear(d[e[3]-5 : e[4]+5]); return d }, "0156789", 1, false},
		{"zeros in the middle", func(d []byte, e []int) []byte { clear(d[e[3]:e[6]]); return d }, "0126789", 1, false},
		{"the first record", func(d []byte, e []int) []byte { clear(d[:e[0]]); return d }, "0123456789", 1, false},
		{"zeros behind", func(d []byte, e []int) []byte { return append(d, make([]byte, 5000)...) }, "0123456789", 0, true},
		{"half a record", func(d []byte, e []int) []byte { return d[:e[10]-20] }, "012345678", 0, true},
		{"half a header", func(d []byte, e []int) []byte { return d[:e[9]+10] }, "012345678", 0, true},
		{"a byte too few", func(d []byte, e []int) []byte { return d[:e[10]-1] }, "012345678", 0, true},
		{"half a record, zeros", func(d []byte, e []int) []byte { return append(d[:e[10]-20], make([]byte, 100)...) }, "012345678", 0, true},
		{"damage, then half a record", func(d []byte, e []int) []byte { d[e[3]-13] ^= 1; return d[:e[10]-5] }, "01345678", 1, true},
		{"nothing is left", func(d []byte, e []int) []byte { clear(d); return d }, "", 0, true},
		{"empty", func(d []byte, e []int) []byte { return nil }, "", 0, false},
		{"noise", func(d []byte, e []int) []byte { return append(d, "\nx y\n\n"...) }, "0123456789", 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, name, ends := newFilledDisk(t)
			i := d.names[name]
			i.data = c.change(i.data, ends)
			damaged := slices.Clone(i.data)
			for round := range 2 { // the lines are read but not synced, so that the next read returns them again
				d = d.restart(false, nil)
				j := open(t, d)
				equal(t, "cut", j.Stats().CutBytes > 0, c.cut && round == 0)
				add(t, j, batch("a-x", "+"))
				var got []Entry
				for j.Stats().Jobs > int64(len(got)) {
					got = append(got, reserve(t, j, 3, longTime).Read()...)
				}
				want := c.want + strings.Repeat("+", round+1)
				equal(t, "lines", lines(got), want)
				equal(t, "set aside", len(d.badFiles()), c.badFileCount)
				equal(t, "counted", j.Stats().AsideFiles, c.badFileCount)
				j.Close()
			}
			for _, name := range d.badFiles() {
				data := d.names[name].data
				if !bytes.Contains(damaged, data) || len(data) == 0 {
					t.Errorf("%q is not of the segment", data)
				}
			}
		})
	}
}

// unsaltedRecord returns a record with a valid checksum, which anybody can compute, but without a salt.
func unsaltedRecord(jobtype, attributes string, lines ...string) []byte {
	body := strings.Join(lines, "\n") + "\n"
	head := fmt.Sprintf("#:Batch date=2026-01-01T00:00:00.000Z,bytes=%d,jobtype=%s,count=%d%s", len(body), jobtype, len(lines), attributes)
	crc := crc32.Checksum([]byte(head+body), crc32.MakeTable(crc32.Castagnoli))
	return fmt.Appendf(nil, "%s,crc=%08x\n%s#:EndBatch\n", head, crc, body)
}

// TestLinesThatLookLikeRecords: a client's line is never read as a record, however the record
// around it is damaged.
func TestLinesThatLookLikeRecords(t *testing.T) {
	forgedLines := []string{"before", "#:Batch date=2026-01-01T00:00:00.000Z,bytes=2,jobtype=other-x,count=1", "x", "#:EndBatch"}
	forgedLines = append(forgedLines, strings.Split(string(unsaltedRecord("other-x", "", "y")), "\n")...)
	forgedLines = append(forgedLines, strings.Split(string(unsaltedRecord("other-x", ",salt=AAAAAAAAAAAA", "z")), "\n")...)
	forgedLines = slices.DeleteFunc(append(forgedLines, "other-x|other-x|y", "after"), func(s string) bool { return s == "" })
	for _, c := range []struct {
		name   string
		change func(data []byte) []byte
		want   string
		cut    bool
	}{
		{"a line", func(d []byte) []byte { d[bytes.Index(d, []byte("before"))] ^= 1; return d }, "a-x:first a-x:next a-y:one of two all", false},
		{"its header", func(d []byte) []byte {
			d[bytes.Index(d, fmt.Appendf(nil, "count=%d", len(forgedLines)))] ^= 1
			return d
		}, "a-x:first a-x:next a-y:one of two all", false},
		{"its size", func(d []byte) []byte {
			at := bytes.LastIndex(d[:bytes.Index(d, []byte("before"))], []byte("bytes=")) + len("bytes=")
			size := bytes.Index(d, []byte("x\n#:EndBatch")) - bytes.Index(d, []byte("before")) + 2
			copy(d[at:], fmt.Sprintf("%03d", size)) // damage that ends before a forged record
			return d
		}, "a-x:first a-x:next a-y:one of two all", false},
		{"torn", func(d []byte) []byte { return d[:bytes.Index(d, []byte("after"))+2] }, "a-x:first", true},
		{"torn in a forged one", func(d []byte) []byte { return d[:bytes.Index(d, []byte("z\n"))+2] }, "a-x:first", true},
		{"torn, and a line", func(d []byte) []byte {
			d[bytes.Index(d, []byte("before"))] ^= 1
			return d[:bytes.Index(d, []byte("after"))+2]
		}, "a-x:first", true},
		{"of several records", func(d []byte) []byte { return d[:bytes.LastIndex(d, []byte("after"))] }, "a-x:first all a-x:next", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk()
			j := open(t, d)
			add(t, j, batch("a-x", "first"))
			add(t, j, batch("a-x", forgedLines...))
			if !c.cut || strings.Contains(c.name, "several") {
				add(t, j, batch("a-x", "next"))
				add(t, j, batch("a-y", "one of two"), batch("a-x", forgedLines...))
			}
			j.Close()
			i := d.names[j.Segments()[0]]
			i.data = c.change(i.data)
			j = open(t, d.restart(false, nil))
			got := text(readRest(t, j))
			equal(t, "lines", strings.ReplaceAll(got, "a-x:"+strings.Join(forgedLines, " a-x:"), "all"), c.want)
			equal(t, "cut off", j.Stats().CutBytes > 0, c.cut)
			equal(t, "set aside", j.Stats().DamagedBytes > 100, !c.cut)
		})
	}
}

// TestUnreadablePartIsReadAgain: a part that the disk does not return, at the start or later, does
// not count as damage. Such a part is read again until the read succeeds, and meanwhile new lines
// are accepted.
func TestUnreadablePartIsReadAgain(t *testing.T) {
	const size = 5000
	lines := make([]string, 3)
	for i := range lines {
		lines[i] = fmt.Sprint(i, strings.Repeat("x", size))
	}
	for _, c := range []struct {
		name string
		from int64 // the end
		to   int64
	}{{"half a record", 100, 0}, {"a record", size + 1000, 0}, {"two", 2*size + 1000, 0}, {"in the middle", size + 2000, size + 1000}, {"the beginning", 3*size + 1000, 3 * size}} {
		for _, moment := range []string{"at the start", "until the next start", "between two", "while it is copied"} {
			t.Run(c.name+" "+moment, func(t *testing.T) {
				d := newDisk()
				j := open(t, d)
				var receipts []Receipt
				for _, line := range lines {
					receipts = append(receipts, add(t, j, batch("a-x", line)))
				}
				data := d.names[j.Segments()[0]].data
				fileSize := int64(len(data))
				want := "012n"
				if moment == "while it is copied" {
					want = "02n"
					data[bytes.Index(data, []byte(lines[1]))] ^= 1
				}
				if moment != "between two" {
					j.Close()
					d = d.restart(false, nil)
				}
				unreadable := func(yes bool) {
					d.mu.Lock()
					defer d.mu.Unlock()
					if d.unreadable = nil; yes {
						d.unreadable = func(from, to int64) bool { return from < fileSize-c.to && to > fileSize-c.from }
					}
				}
				unreadable(true)
				if moment != "between two" {
					j = open(t, d)
				}
				add(t, j, batch("a-x", "next"))
				read := func() (got string) {
					for {
						r, err := j.Reserve(cancelled(t), "", 100, longTime)
						if err != nil {
							if !errors.Is(err, syscall.EIO) && !errors.Is(err, context.Canceled) {
								t.Fatal(err)
							}
							return got
						}
						for _, e := range r.Read() {
							got += string(e.Payload[:1])
						}
						if err := r.Sync(); err != nil {
							t.Fatal(err)
						}
					}
				}
				before := read()
				equal(t, "what is read before", strings.HasPrefix("012", before), true)
				if _, found, err := j.Find(receipts[2].First[0]); !found && err == nil && !strings.Contains(before, "2") {
					t.Error("a job in a part that cannot be read is reported as missing")
				}
				equal(t, "set aside and cut", []any{len(d.badFiles()), j.Stats().AsideFiles, j.Stats().CutBytes}, []any{0, 0, 0})
				unreadable(false)
				if moment == "until the next start" {
					j.Close()
					before = "" // no store has recorded it
					d = d.restart(false, nil)
					j = open(t, d)
				}
				equal(t, "lines", before+read(), want)
				equal(t, "waiting", []any{j.Waiting(), j.Stats().Jobs}, []any{map[string]Count{}, 0})
			})
		}
	}
}

// TestMissingEnd: the end of a segment is missing, and the next segment shows where it was. The
// missing bytes count as damaged.
func TestMissingEnd(t *testing.T) {
	d := newDisk()
	j := open(t, d, func(o *Options) { o.SegmentSize = 1 })
	for _, line := range []string{"1", "2", "3"} {
		add(t, j, batch("a-x", strings.Repeat(line, 5000)))
	}
	j.Close()
	i := d.names[j.Segments()[1]]
	i.data = i.data[:len(i.data)-100]
	j = open(t, d.restart(false, nil))
	equal(t, "damaged", j.Stats().DamagedBytes, 100)
	equal(t, "lines", len(readRest(t, j)), 2)
}

// TestSegmentsWithOtherNames: a segment that was given another name, perhaps another segment's, is
// read as a whole. The following segment records the end of the segment written before it, and not
// of the file that now has that segment's name.
func TestSegmentsWithOtherNames(t *testing.T) {
	d := newDisk()
	j := open(t, d, func(o *Options) { o.SegmentSize = 1 })
	for _, size := range []int{100, 5000, 20} {
		add(t, j, batch("a-x", strings.Repeat("1", size)))
	}
	j.Close()
	names := j.Segments()
	d.names[names[0]], d.names[names[1]] = d.names[names[1]], d.names[names[0]]
	j = open(t, d.restart(false, nil))
	s := j.Stats()
	equal(t, "damaged and cut off", []int64{s.DamagedBytes, s.CutBytes}, []int64{0, 0})
	equal(t, "lines", len(readRest(t, j)), 3)
}

// TestSegmentsWithoutSalt: records of an earlier version are read as the earlier version read them.
// After damage, lines without a checksum are not read.
func TestSegmentsWithoutSalt(t *testing.T) {
	name := string(job.NewIDSource("0d0d0d", time.Now).Next(1)) + ".journal"
	records := func() (r [][]byte) {
		r = append(r, []byte("#:Batch date=2026-01-01T00:00:00.000Z,bytes=0,id=,count=0\n#:EndBatch\n"))
		for _, line := range []string{"0", "1", "2"} {
			r = append(r, unsaltedRecord("a-x", ",id="+string(job.NewIDSource("0d0d0d", time.Now).Next(1)), line))
		}
		return r
	}
	for _, c := range []struct {
		name         string
		change       func(r [][]byte) [][]byte
		want         string
		badFileCount int
	}{
		{"whole", func(r [][]byte) [][]byte { return r }, "012", 0},
		{"a line", func(r [][]byte) [][]byte { r[2][len(r[2])-13] ^= 1; return r }, "02", 1},
		{"the first", func(r [][]byte) [][]byte { clear(r[0]); return r }, "012", 1},
		{"torn", func(r [][]byte) [][]byte { r[3] = r[3][:len(r[3])-5]; return r }, "01", 0},
		{"of the text's form", func(r [][]byte) [][]byte { return append(r, []byte("no-id|a-x|3\n")) }, "0123", 0},
		{"the same behind damage", func(r [][]byte) [][]byte {
			r[3][len(r[3])-13] ^= 1
			return append(r, []byte("no-id|a-x|3\n#:Batch bytes=2,jobtype=a-x\n4\n#:EndBatch\n"), unsaltedRecord("a-x", "", "5"))
		}, "015", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDisk()
			f, err := d.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(bytes.Join(c.change(records()), nil), 0); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				j := open(t, d)
				equal(t, "lines", lines(reserve(t, j, 100, longTime).Read()), c.want)
				equal(t, "set aside", len(d.badFiles()), c.badFileCount)
				j.Close()
				d = d.restart(false, nil)
			}
		})
	}
}

// TestTextForm: a journal that was written by hand is read: lines without records, and records
// without ids or checksums.
func TestTextForm(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	id := add(t, j, batch("a-x", "ours")).First[0]
	j.Close()
	name := j.Segments()[0]
	givenID := id.Add(100)
	d.names[name].data = append(d.names[name].data, fmt.Sprintf(
		"%s|a-y|with|bars\nno-id|b-x|new\n\n#:Batch date=2026-01-02,bytes=9,jobtype=c-x\none\n\ntwo\n#:EndBatch\n#:Batch bytes=2,jobtype=c-y,dt=2026-01-02T03:04:05Z\nz\n#:EndBatch\n", givenID)...)
	j = open(t, d.restart(false, nil))
	got := readRest(t, j)
	equal(t, "lines", text(got), "a-x:ours a-y:with|bars b-x:new c-x:one c-x:two c-y:z")
	equal(t, "id that was given", got[1].ID, givenID)
	seen := make(map[string]bool)
	for _, e := range got {
		if seen[string(e.ID)] || len(e.ID) != len(id) {
			t.Fatalf("id %q", e.ID)
		}
		seen[string(e.ID)] = true
	}
	equal(t, "dt", got[5].Due.Format("2006-01-02 15:04:05"), "2026-01-02 03:04:05")
	equal(t, "damage", j.Stats().DamagedBytes, 0)
}

// naiveJournal is a model of a journal that keeps its lines in lists.
type naiveJournal struct {
	ackedIDs []string        // accepted, in order
	unsure   map[string]bool // requests that got no answer, by the beginning of their lines: they may have been accepted
	refused  map[string]bool
	pending  []string         // refused, but this is not on the disk yet
	points   map[string]int64 // read points, as a store keeps them
	stored   []string
}

// ingest reads pieces as a store does.
func (n *naiveJournal) ingest(r *Reservation) {
	for _, e := range r.Read() {
		if e.End > n.points[r.Segment] {
			n.stored = append(n.stored, string(e.Payload))
		}
	}
	n.points[r.Segment] = max(n.points[r.Segment], r.To)
}

// TestRandomLosses: whatever fails, and whenever the power is lost or the program dies, accepted
// lines are stored once and in order, and refused lines are never stored. Of a request without an
// answer, either all lines are stored or none.
func TestRandomLosses(t *testing.T) {
	rounds := 100
	if os.Getenv("JOURNAL_SEED") != "" {
		rounds = 1
	}
	for round := range rounds {
		seed := rand.Uint64()
		if s := os.Getenv("JOURNAL_SEED"); s != "" {
			fmt.Sscan(s, &seed)
		}
		if !t.Run(fmt.Sprint(round), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("JOURNAL_SEED=%d", seed)
				}
			}()
			testLosses(t, rand.New(rand.NewPCG(seed, 1)))
		}) {
			return
		}
	}
}

func testLosses(t *testing.T, r *rand.Rand) {
	n := &naiveJournal{unsure: make(map[string]bool), refused: make(map[string]bool), points: make(map[string]int64)}
	d := newDisk()
	number := 0
	for range 6 {
		j := open(t, d, func(o *Options) { o.SegmentSize = int64(1000 + r.IntN(8000)) })
		stopAt := r.IntN(60) // changes to the disk until the power is lost
		frail := r.IntN(2) == 0
		changes := 0
		d.mu.Lock()
		d.fail = func(op, name string) error {
			if changes++; changes > stopAt {
				d.poweredOff = true
				return errPowerLost
			}
			if frail && r.IntN(10) == 0 {
				return fmt.Errorf("%s fails", op)
			}
			return nil
		}
		d.mu.Unlock()
		var reservations []*Reservation
		for range 60 {
			switch r.IntN(4) {
			case 0, 1:
				number++
				n.append(t, j, d, number, r)
			case 2:
				if j.Stats().Jobs > 0 {
					if res, err := j.Reserve(cancelled(t), "", 1+r.IntN(5), longTime); err == nil {
						reservations = append(reservations, res)
					}
				}
			case 3:
				if len(reservations) == 0 {
					continue
				}
				res := reservations[0]
				reservations = reservations[1:]
				if r.IntN(4) == 0 {
					// Lines are ingested in order, so the reservations after res are given
					// back, too.
					for _, reservation := range reservations {
						reservation.Cancel()
					}
					reservations = nil
					res.Cancel()
				} else {
					n.ingest(res)
					if r.IntN(5) > 0 {
						if err := res.Sync(); err != nil {
							t.Fatal(err)
						}
					} else { // the program died before it answered
						for _, reservation := range reservations {
							reservation.Cancel()
						}
						reservations = nil
						res.Cancel()
					}
				}
			}
		}
		j.Close()
		for _, line := range n.pending {
			n.unsure[line] = true
		}
		n.pending = nil
		d = d.restart(r.IntN(2) == 0, r)
	}
	j := open(t, d)
	for j.Stats().Jobs > 0 {
		res := reserve(t, j, 5, longTime)
		n.ingest(res)
		if err := res.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	n.check(t, len(d.badFiles()) > 0)
}

func (n *naiveJournal) append(t *testing.T, j *Journal, d *disk, number int, r *rand.Rand) {
	b := Batch{Jobtype: "a-x"}
	for i := range 1 + r.IntN(4) {
		b.Lines = append(b.Lines, []byte(fmt.Sprint(number, ".", i, strings.Repeat(" ", r.IntN(500)))))
	}
	batches := []Batch{b}
	if len(b.Lines) > 1 && r.IntN(2) == 0 { // as two records
		batches = []Batch{{Jobtype: "a-x", Lines: b.Lines[:1]}, {Jobtype: "a-x", Lines: b.Lines[1:]}}
	}
	segments := j.Segments()
	_, err := j.Append(t.Context(), batches)
	d.mu.Lock()
	off, told := d.poweredOff, d.lastErr == nil
	d.mu.Unlock()
	if now := j.Segments(); len(now) > 0 && (len(segments) == 0 || now[len(now)-1] != segments[len(segments)-1]) {
		for _, line := range n.pending {
			n.refused[line] = true
		}
		n.pending = nil
	}
	for _, line := range b.Lines {
		switch {
		case err == nil:
			n.ackedIDs = append(n.ackedIDs, string(line))
		case off:
			n.unsure[string(line)] = true
		case !told:
			n.pending = append(n.pending, string(line))
		default:
			n.refused[string(line)] = true
		}
	}
}

// check checks what is stored. A request without an answer may have been accepted. If a part of it
// was set aside, only the rest may be stored.
func (n *naiveJournal) check(t *testing.T, damaged bool) {
	t.Helper()
	seen := make(map[string]bool)
	recordRanges := make(map[string][2]int) // for each request, how many of its lines are stored, and how many are not
	i := 0
	for _, line := range n.stored {
		if seen[line] {
			t.Fatalf("%s is stored twice", strings.TrimSpace(line))
		}
		seen[line] = true
		switch {
		case n.refused[line]:
			t.Fatalf("%s was refused, and is stored", strings.TrimSpace(line))
		case n.unsure[line]:
		case i == len(n.ackedIDs) || n.ackedIDs[i] != line:
			t.Fatalf("%s is stored out of turn", strings.TrimSpace(line))
		default:
			i++
		}
	}
	if i != len(n.ackedIDs) {
		t.Fatalf("%s was accepted, and is not stored", strings.TrimSpace(n.ackedIDs[i]))
	}
	for line := range n.unsure {
		request, _, _ := strings.Cut(line, ".")
		w := recordRanges[request]
		if seen[line] {
			w[0]++
		} else {
			w[1]++
		}
		if recordRanges[request] = w; w[0] > 0 && w[1] > 0 && !damaged {
			t.Fatalf("a part of request %s is stored", request)
		}
	}
}

// TestDamagedIsNotStored: a caller that waits until its lines are in a store gets an error if no
// store will have the lines.
func TestDamagedIsNotStored(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	spoiltReceipt, intactReceipt := add(t, j, batch("a-x", "spoilt")), add(t, j, batch("a-x", "whole"))
	data := d.names[j.Segments()[0]].data
	data[bytes.Index(data, []byte("spoilt"))] ^= 1
	r := reserve(t, j, 100, longTime)
	equal(t, "read", text(r.Read()), "a-x:whole")
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	equal(t, "stored", []error{j.Stored(t.Context(), spoiltReceipt), j.Stored(t.Context(), intactReceipt)}, []error{ErrSetAside, nil})
}

// TestSetAside: lines that a store does not accept are copied once, in the journal's format, and
// are not read again after the rest of the piece is synced.
func TestSetAside(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	largeBatch := batch("a-x", "1", "too large", "3")
	largeBatch.Due, largeBatch.Delay = due, time.Hour
	storedReceipt, part := add(t, j, batch("b-y", "0")), add(t, j, largeBatch)
	r := reserve(t, j, 100, longTime)
	refused := r.Read()[2]
	if err := r.SetAside([]job.ID{refused.ID}, errors.New("too large")); err != nil {
		t.Fatal(err)
	}
	// The line remains set aside if the rest of the piece is read again.
	for range 2 {
		equal(t, "left", text(r.Read()), "b-y:0 a-x:1 a-x:3")
		r.Cancel()
		r = reserve(t, j, 100, longTime)
	}
	equal(t, "waiting", j.Waiting(), map[string]Count{"b-y": {Jobs: 1}, "a-x": {Jobs: 3, Delayed: 3}})
	equal(t, "aside", j.SetAsideJobs(), map[string]int64{"a-x": 1})
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	equal(t, "waiting", len(j.Waiting()), 0)
	equal(t, "stored", []error{j.Stored(t.Context(), storedReceipt), j.Stored(t.Context(), part)}, []error{nil, ErrSetAside})
	files := d.badFiles()
	equal(t, "files", len(files), 1)
	equal(t, "counted", []any{j.Stats().AsideFiles, j.Stats().DamagedBytes}, []any{1, int64(len(d.names[files[0]].data))})

	copiedDisk := newDisk() // the copy has the format of a journal
	f, err := copiedDisk.Create(string(job.NewIDSource("0d0d0d", time.Now).Next(1)) + ".journal")
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt(d.names[files[0]].data, 0)
	got := reserve(t, open(t, copiedDisk), 100, longTime).Read()
	equal(t, "read", text(got), "a-x:too large")
	equal(t, "id and dt", []any{got[0].ID, got[0].Due.Equal(due), got[0].Delay}, []any{refused.ID, true, time.Hour})
}

// TestSetAsideBeforeAKill: the program is killed after it has set lines aside and before the rest
// of their piece is written. The lines stay set aside, even if the piece has grown. For a piece
// without other lines, the store gets a range without lines.
func TestSetAsideBeforeAKill(t *testing.T) {
	d := newDisk()
	j := open(t, d)
	add(t, j, batch("a-x", "1", "too large"))
	r := reserve(t, j, 100, longTime)
	if err := r.SetAside([]job.ID{r.Read()[1].ID}, errors.New("too large")); err != nil {
		t.Fatal(err)
	}
	add(t, j, batch("a-x", "3", "too large"))
	j = open(t, d.restart(false, nil))
	r = reserve(t, j, 100, longTime)
	equal(t, "read", text(r.Read()), "a-x:1 a-x:3 a-x:too large")
	if err := r.SetAside([]job.ID{r.Read()[0].ID, r.Read()[1].ID, r.Read()[2].ID}, errors.New("too large")); err != nil {
		t.Fatal(err)
	}
	r.Cancel()
	r = reserve(t, j, 100, longTime)
	equal(t, "read", []any{len(r.Read()), r.To > r.From}, []any{0, true})
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	equal(t, "left", []any{len(j.Waiting()), j.Stats().AsideFiles, j.SetAsideJobs()["a-x"]}, []any{0, 2, int64(4)})
}

// TestFilesThatAreNoSegments: files and directories without a segment's name, among them renamed
// segments, are named in the log once, and the journal works without them.
func TestFilesThatAreNoSegments(t *testing.T) {
	dir := t.TempDir()
	files, err := Directory(dir)
	if err != nil {
		t.Fatal(err)
	}
	j := open(t, files)
	first := add(t, j, batch("a-x", "one")).First[0]
	j.Close()
	names := []string{string(first) + ".journal.gz", "notes", "x.journal", string(first.Add(1)) + ".journal/", string(first) + ".bad/"}
	for _, name := range names {
		path := filepath.Join(dir, "journal", name)
		if strings.HasSuffix(name, "/") {
			err = os.Mkdir(path, 0o700)
		} else {
			err = os.WriteFile(path, []byte("x"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "journal", "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if files, err = Directory(dir); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	j = open(t, files, func(o *Options) { o.Log = zerolog.New(&log) })
	if strings.Contains(log.String(), "lost+found") {
		t.Errorf("it names the file system's own directory: %s", log.String())
	}
	add(t, j, batch("a-x", "two"))
	equal(t, "lines", text(readRest(t, j)), "a-x:one a-x:two")
	for _, name := range names {
		if n := strings.Count(log.String(), fmt.Sprintf("%q", name)); n != 1 {
			t.Errorf("%s is named %d times in %s", name, n, log.String())
		}
	}
	aside, err := j.AsideFiles()
	equal(t, "set aside", []any{len(aside), err, j.Stats().AsideFiles}, []any{0, nil, 0})
}
