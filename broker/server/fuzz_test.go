package server

import (
	"bytes"
	"encoding/binary"
	"testing"

	"gloom/broker/container"
	"gloom/wire"
)

// FuzzInput: whatever the bytes are, and however they are split, the assembler returns
// their frames whole and in order, and stops at one that is too long.
func FuzzInput(f *testing.F) {
	header := func(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
	f.Add([]byte{}, uint8(0), uint16(3), uint32(1000))
	f.Add(append(header(5), "abcdefgh"...), uint8(3), uint16(1), uint32(100))
	f.Add(bytes.Repeat(header(0), 9), uint8(30), uint16(5), uint32(1))
	f.Add(append(header(3000), header(1<<20)...), uint8(200), uint16(700), uint32(minBigFrame))
	f.Fuzz(func(t *testing.T, data []byte, big uint8, piece uint16, limit uint32) {
		const max = 2 * minBigFrame
		// Some of the frames are big.
		stream := append(append(header(int(big)<<10), make([]byte, int(big)<<10)...), data...)
		in := input{pool: &container.Buffers{MaxBytes: maxPool}, maxPayload: max, maxOwnAlloc: int(limit)}
		var want, got [][]byte
		var bad, refused bool
		for remaining := stream; ; {
			payload, n, err := wire.SplitFrame(remaining, max)
			if bad = err != nil; bad || n == 0 {
				break
			}
			want, remaining = append(want, payload), remaining[n:]
		}
		for remaining := stream; len(remaining) > 0 && !refused; {
			n := min(1+int(piece), len(remaining))
			in.feed(remaining[:n])
			remaining = remaining[n:]
			for {
				payload, kept, err := in.nextPayload()
				if in.growTo > 0 {
					in.frame, in.growTo = withCapacity(in.frame, in.growTo), 0
					continue
				}
				if refused = err != nil; refused || payload == nil {
					break
				}
				if kept && len(payload) <= minBigFrame {
					t.Fatalf("%d bytes are kept", len(payload))
				}
				got = append(got, bytes.Clone(payload))
				in.release()
			}
			if !refused && len(in.data) > 0 {
				t.Fatalf("%d bytes are left, and nothing is awaited", len(in.data))
			}
			in.keepRest()
			if limit := maxGrowth*len(in.frame) + container.MaxBuffer; in.heldBytes() > limit {
				t.Fatalf("%d bytes are held for %d of a frame that have arrived", in.heldBytes(), len(in.frame))
			}
		}
		if refused != bad || len(got) != len(want) || in.frames != uint64(len(want)) {
			t.Fatalf("%d frames and refused %t, want %d and %t", len(got), refused, len(want), bad)
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("frame %d is another", i)
			}
		}
	})
}
