package fleet_test

import (
	"testing"

	"github.com/tinylib/msgp/msgp"

	"gloom/broker"
	"gloom/broker/fleet"
)

// FuzzItems: whatever messages a peer sends, damaged ones or those of another version, the worst
// effect is the end of its session.
func FuzzItems(f *testing.F) {
	item := func(kind byte, rest ...any) (b []byte) {
		b = msgp.AppendUint64(b, uint64(kind))
		for _, v := range rest {
			b, _ = msgp.AppendIntf(b, v)
		}
		return b
	}
	f.Add(item('o', []byte(`"t"`), int64(0), int64(1), int64(3)))
	f.Add(item('t', []byte(`"t"`), int64(1)<<62))
	f.Add(item('l', uint64(1), uint64(1), []byte(`"t"`), []byte(`"1"`), int64(0), int64(0), true, []byte(nil), []byte("1")))
	f.Add(item('u', uint64(1), uint64(1), true))
	f.Add(item('w', uint64(1), uint64(1), true))
	f.Add(item('g', uint64(1), false, []byte(`"1"`), int64(5), false))
	f.Add(item('r', uint64(1), true, []byte(`"1"`), []byte("1")))
	f.Add(item('f', uint64(1), false, []byte(`"1"`), uint64(1), int64(5), "no"))
	f.Add(item('o', []byte(`\`), int64(0), int64(1), int64(1)))
	f.Fuzz(func(t *testing.T, items []byte) {
		core := broker.New(broker.Config{MaxUnusedTypes: 10, MaxTypes: 100})
		m := fleet.New(fleet.Config{Name: "a", Epoch: 1, MaxMessage: 1 << 10}, core, 1, func([]broker.Effect) {})
		w := core.AddWorker()
		core.Join(1, w, &broker.JoinRequest{Types: [][]byte{[]byte(`"*"`)}, Prefetch: 4})
		const now = int64(1e9)
		m.Tick(now)
		start := func(kind byte) (b []byte) {
			b = msgp.AppendUint64(b, 4) // the version
			b = msgp.AppendUint64(b, uint64(kind))
			b = msgp.AppendString(b, "b")
			return msgp.AppendUint64(b, 7)
		}
		// The session is established: b hears a, which calls the session 1; b calls it
		// 5.
		beat := msgp.AppendInt64(start('b'), 1)
		beat = msgp.AppendBool(beat, false)
		beat = msgp.AppendArrayHeader(beat, 1)
		beat = msgp.AppendString(beat, "a")
		for _, v := range []uint64{1, 5, 1, 0, 0} {
			beat = msgp.AppendUint64(beat, v)
		}
		beat = msgp.AppendInt64(msgp.AppendInt64(beat, 0), 0)
		m.Receive(now, beat)
		if m.Info().Peers[0].State != "up" {
			t.Fatal("the peer is not met")
		}
		data := start('d')
		for _, v := range []uint64{5, 1, 0, 1} {
			data = msgp.AppendUint64(data, v)
		}
		data = msgp.AppendBytes(msgp.AppendBool(data, false), items)
		m.Receive(now, data)
		m.Receive(now, items) // the items as a message
		m.Receive(now, append(start('w'), items...))
		m.Tick(now + 1e9)
		m.Messages(nil)
	})
}
