package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"gloom/wire"
)

func frame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

func TestSplitFrameEnforcesLimit(t *testing.T) {
	for _, c := range []struct {
		length uint32
		max    int
		refuse bool
	}{
		{0, 0, false}, {1, 0, true}, {16, 16, false}, {17, 16, true},
		{math.MaxInt32, 1 << 20, true}, {1 << 31, 1 << 20, true}, {math.MaxUint32, 1 << 20, true},
		{math.MaxUint32, math.MaxUint32, false}, {math.MaxUint32, math.MaxUint32 - 1, true},
	} {
		head := binary.BigEndian.AppendUint32(nil, c.length)
		payload, used, err := wire.SplitFrame(head, c.max)
		switch {
		case c.refuse:
			if err == nil || err.Code != wire.SizeError || payload != nil || used != 0 {
				t.Errorf("length %d, at most %d: %q, %d, %v", c.length, c.max, payload, used, err)
			}
		case err != nil:
			t.Errorf("length %d, at most %d: %v", c.length, c.max, err)
		case c.length > 0 && (payload != nil || used != 0):
			t.Errorf("length %d without a payload gives %q, %d", c.length, payload, used)
		}
	}
}

func TestPayloadCapacityEndsWithFrame(t *testing.T) {
	buf := append(frame([]byte("one")), frame([]byte("two"))...)
	payload, used, err := wire.SplitFrame(buf, 10)
	if err != nil || used != 7 || string(payload) != "one" {
		t.Fatalf("%q, %d, %v", payload, used, err)
	}
	if &payload[0] != &buf[4] {
		t.Error("the payload was copied")
	}
	_ = append(payload, 'X') // must not overwrite the next frame
	if string(buf[7:]) != "\x00\x00\x00\x03two" {
		t.Errorf("the next frame became %q", buf[7:])
	}
}

// frameCollector collects the messages of a stream that arrives in pieces.
type frameCollector struct {
	buf      []byte
	payloads [][]byte
	err      *wire.Error
}

func (s *frameCollector) feed(piece []byte, max int) {
	s.buf = append(s.buf, piece...)
	for s.err == nil {
		payload, used, err := wire.SplitFrame(s.buf, max)
		s.err = err
		if err != nil || used == 0 {
			return
		}
		s.payloads = append(s.payloads, bytes.Clone(payload))
		s.buf = s.buf[used:]
	}
}

func (s *frameCollector) String() string {
	return fmt.Sprintf("%q, left %q, error %v", s.payloads, s.buf, s.err)
}

// goldenStreamOf concatenates the short golden requests of a port.
func goldenStreamOf(t *testing.T, port wire.Port) (stream []byte, frames []goldenCase, payloads [][]byte) {
	for _, c := range allGolden(t) {
		payload := c.payload(t)
		if c.Direction != "request" || c.ports()[0] != port || len(payload) > 300 {
			continue
		}
		stream = append(stream, frame(payload)...)
		frames, payloads = append(frames, c), append(payloads, payload)
	}
	if len(payloads) < 20 {
		t.Fatalf("only %d frames for the %v", len(payloads), port)
	}
	return stream, frames, payloads
}

func TestStreamsMayBeCutAnywhere(t *testing.T) {
	const max = 1 << 16
	for _, port := range []wire.Port{wire.SubmitPort, wire.WorkerPort} {
		stream, _, payloads := goldenStreamOf(t, port)
		for cut := range len(stream) + 1 {
			var s frameCollector
			s.feed(stream[:cut], max)
			s.feed(stream[cut:], max)
			if len(s.payloads) != len(payloads) || len(s.buf) != 0 || s.err != nil {
				t.Fatalf("cut at %d: %d frames of %d, %d bytes left, %v", cut, len(s.payloads), len(payloads), len(s.buf), s.err)
			}
			for i, want := range payloads {
				if !bytes.Equal(s.payloads[i], want) {
					t.Fatalf("cut at %d: frame %d is %q", cut, i, s.payloads[i])
				}
			}
		}
	}
}

func TestGoldenStreamsMayBeCutAnywhere(t *testing.T) {
	for _, c := range loadGolden[goldenStream](t, "streams.json") {
		data := goldenCase{Hex: c.Hex}.payload(t)
		var complete frameCollector
		complete.feed(data, c.MaxFrame)
		for cut := range len(data) + 1 {
			var s frameCollector
			s.feed(data[:cut], c.MaxFrame)
			s.feed(data[cut:], c.MaxFrame)
			if s.String() != complete.String() {
				t.Errorf("%s cut at %d: %v, whole: %v", c.Name, cut, &s, &complete)
			}
		}
		var s frameCollector
		for i := range data {
			s.feed(data[i:i+1], c.MaxFrame)
		}
		if s.String() != complete.String() {
			t.Errorf("%s byte by byte: %v, whole: %v", c.Name, &s, &complete)
		}
	}
}

// TestReusedDecoderReadsLikeNew: a decoder that has read other frames, even invalid ones,
// must read each frame as a new decoder would.
func TestReusedDecoderReadsLikeNew(t *testing.T) {
	for _, port := range []wire.Port{wire.SubmitPort, wire.WorkerPort} {
		_, frames, _ := goldenStreamOf(t, port)
		reusedDecoder := wire.Decoder{DefaultType: "default"}
		for i := range frames {
			for _, c := range []goldenCase{frames[i], frames[len(frames)-1-i]} {
				newDecoder := wire.Decoder{DefaultType: "default"}
				var r1, r2 wire.Request
				err1 := reusedDecoder.Decode(c.payload(t), port, c.Named, &r1)
				err2 := newDecoder.Decode(c.payload(t), port, c.Named, &r2)
				if (err1 == nil) != (err2 == nil) || err1 != nil && err1.Error() != err2.Error() {
					t.Fatalf("%s: %v, with a fresh decoder %v", c.Name, err1, err2)
				}
				if err1 == nil {
					sameMeaning(t, requestMeaning(&r1), requestMeaning(&r2))
				}
			}
		}
	}
}
