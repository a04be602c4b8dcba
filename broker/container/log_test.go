package container

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestLogMatchesSlice compares a log with a slice: the records of the last chunks are there, at
// their positions and in order, and all earlier ones have been dropped.
func TestLogMatchesSlice(t *testing.T) {
	type record struct{ number, check int64 }
	type addedRecord struct {
		record
		text []byte
		pos  int64
	}
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		l := Log[record]{Pages: HeapPages{}}
		limit := int64(1+rnd.IntN(4)) * LogChunk
		l.Limit(limit)
		var records []addedRecord
		for number := range int64(3000) {
			text := bytes.Repeat([]byte(fmt.Sprint(number)), rnd.IntN(200))
			if rnd.IntN(500) == 0 {
				text = make([]byte, LogChunk-int(rnd.IntN(3))*8-16-logTail)
			}
			x, room := l.Add(len(text))
			*x = record{number, ^number}
			copy(room, text)
			if pos := l.Last(); len(records) > 0 && pos <= records[len(records)-1].pos {
				t.Fatalf("seed %d: position %d after %d", seed, pos, records[len(records)-1].pos)
			}
			records = append(records, addedRecord{record{number, ^number}, text, l.Last()})
			if l.HeldBytes() > limit {
				t.Fatalf("seed %d: holds %d of %d bytes", seed, l.HeldBytes(), limit)
			}
			if rnd.IntN(300) == 0 {
				limit = int64(1+rnd.IntN(4)) * LogChunk
				l.Limit(limit)
			}
		}
		pos, n := l.Last(), len(records)
		for pos != 0 {
			n--
			x, text, before := l.At(pos)
			if pos != records[n].pos || *x != records[n].record || !bytes.Equal(text, records[n].text) {
				t.Fatalf("seed %d: record %d at %d is %v, want %v at %d", seed, n, pos, *x, records[n].record, records[n].pos)
			}
			pos = before
		}
		for range 200 { // Align rounds any number down to a record's position
			position := rnd.Int64N(l.Last()+2*LogChunk) - 10
			want := int64(0)
			for _, x := range records[n:] {
				if x.pos <= position {
					want = x.pos
				}
			}
			if got := l.Align(position); got != want {
				t.Fatalf("seed %d: the record at %d or before it is at %d, want %d", seed, position, got, want)
			}
		}
		if *l.First() != records[n].record {
			t.Fatalf("seed %d: the first is %v, want %v", seed, *l.First(), records[n].record)
		}
		for _, x := range records[:n] {
			if got, _, _ := l.At(x.pos); got != nil {
				t.Fatalf("seed %d: record %d is there, the first is %d", seed, x.number, n)
			}
		}
		if heldBytes := l.HeldBytes(); int64(len(records)-n)*16 > heldBytes || heldBytes > limit {
			t.Fatalf("seed %d: %d records in %d bytes, limit %d", seed, len(records)-n, heldBytes, limit)
		}
	}
}
