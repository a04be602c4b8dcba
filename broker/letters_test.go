package broker_test

import (
	"encoding/binary"
	"testing"
	"time"

	"gloom/broker"
)

// TestLettersOutOfTheMiddle: what is kept of failed jobs stays right and
// bounded where letters go from the middle of all while an old one stays.
func TestLettersOutOfTheMiddle(t *testing.T) {
	core := broker.New(broker.Config{DeadLetters: 10, DeadBytes: 1 << 20, DeadAge: time.Hour})
	s, w := core.AddSubmitter(), core.AddWorker()
	failOne := func(now int64, typ, id string) {
		core.Join(now, w, &broker.Joining{Type: []byte(typ)})
		core.Submit(now, s, &broker.Submission{ID: []byte(id), Type: []byte(typ), Body: []byte("1"), Retries: -1})
		core.Fail(now, w, &broker.Failure{Reason: "broken", Delay: -1})
	}
	failOne(0, "old", "first")
	for i := range int64(1000) {
		failOne(i, "busy", string(binary.BigEndian.AppendUint32(nil, uint32(i))))
	}
	letters := func(typ string) []*broker.DeadLetter {
		found, _ := core.DeadLetters([]byte(typ), 0, 100)
		return found
	}
	if n, _ := core.DeadCount(); n != 11 || len(letters("busy")) != 10 || len(letters("old")) != 1 {
		t.Fatalf("%d letters are kept, want 1 and 10", n)
	}
	if got := letters("busy")[9].ID; binary.BigEndian.Uint32(got) != 990 {
		t.Errorf("the oldest letter kept is %d, want 990", binary.BigEndian.Uint32(got))
	}
	hour := int64(time.Hour)
	for _, c := range []struct {
		now  int64
		want int
	}{{hour - 1, 11}, {hour, 10}, {hour + 989, 10}, {hour + 990, 9}, {hour + 2000, 0}} {
		core.Tick(c.now)
		if n, _ := core.DeadCount(); n != c.want {
			t.Errorf("at an hour and %d ns %d letters are kept, want %d", c.now-hour, n, c.want)
		}
	}
	if n, bytes := core.DeadCount(); n != 0 || bytes != 0 || core.Next() != broker.Never {
		t.Errorf("%d letters of %d bytes are left, next deadline %d", n, bytes, core.Next())
	}
}

// TestLettersFillTheirBytes: as many letters are kept as just fit.
func TestLettersFillTheirBytes(t *testing.T) {
	fill := func(limit int64) (int, int64) {
		core := broker.New(broker.Config{DeadLetters: 100, DeadBytes: limit, DeadAge: time.Hour})
		s, w := core.AddSubmitter(), core.AddWorker()
		core.Join(0, w, &broker.Joining{Type: []byte("echo")})
		for i := range byte(20) {
			core.Submit(0, s, &broker.Submission{ID: []byte{'a' + i}, Type: []byte("echo"), Body: []byte("1"), Retries: -1})
			core.Fail(0, w, &broker.Failure{Reason: "broken", Delay: -1})
		}
		return core.DeadCount()
	}
	n, all := fill(1 << 20)
	if n != 20 || all%20 != 0 {
		t.Fatalf("%d letters of %d bytes are kept, want 20 of equal size", n, all)
	}
	for _, c := range []struct {
		limit int64
		want  int
	}{{all, 20}, {all - 1, 19}, {all / 20 * 3, 3}, {all/20*3 - 1, 2}, {all / 20, 1}, {all/20 - 1, 0}} {
		if n, bytes := fill(c.limit); n != c.want || bytes > c.limit {
			t.Errorf("of %d bytes %d letters of %d bytes are kept, want %d letters", c.limit, n, bytes, c.want)
		}
	}
}
