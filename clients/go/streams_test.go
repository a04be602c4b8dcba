package gloom

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// stream is a connection of which only the reading side is used.
type stream struct {
	net.Conn
	from io.Reader
}

func (s stream) Read(p []byte) (int, error) { return s.from.Read(p) }

// TestGoldenStreams splits the byte streams that all clients share into frames, however
// their bytes arrive.
func TestGoldenStreams(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "wire", "testdata", "streams.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Cases []struct {
			Name     string
			MaxFrame int `json:"max_frame"`
			Hex      string
			Payloads []string
			Rest     int
			Error    *struct{ Says []string }
		}
	}
	if err := json.Unmarshal(data, &doc); err != nil || len(doc.Cases) < 16 {
		t.Fatalf("%d cases, %v", len(doc.Cases), err)
	}
	for _, c := range doc.Cases {
		t.Run(c.Name, func(t *testing.T) {
			input, err := hex.DecodeString(c.Hex)
			if err != nil {
				t.Fatal(err)
			}
			arrivals := []io.Reader{iotest.OneByteReader(bytes.NewReader(input)), iotest.HalfReader(bytes.NewReader(input)),
				iotest.DataErrReader(bytes.NewReader(input))}
			for cut := range len(input) + 1 {
				arrivals = append(arrivals, io.MultiReader(bytes.NewReader(input[:cut]), bytes.NewReader(input[cut:])))
			}
			for i, arrival := range arrivals {
				in := make([]byte, 0, 1+i%64) // small, so that it must grow
				f := conn{conf: new(config), nc: stream{from: arrival}, maxIn: c.MaxFrame, inBuf: in}
				got, used := []string{}, 0
				var payload []byte
				var err error
				for payload, err = f.nextFrame(); err == nil; payload, err = f.nextFrame() {
					got = append(got, string(payload))
					used += 4 + len(payload)
				}
				if !slices.Equal(got, c.Payloads) || len(input)-used != c.Rest {
					t.Fatalf("arrival %d: cut into %q, %d bytes left; want %q, %d", i, got, len(input)-used, c.Payloads, c.Rest)
				}
				var protocolErr *ProtocolError
				switch {
				case c.Error == nil && (err != io.EOF || len(f.inBuf)-f.inPos != c.Rest):
					t.Fatalf("arrival %d: %v, holds %d bytes; want the end, %d", i, err, len(f.inBuf)-f.inPos, c.Rest)
				case c.Error != nil && !errors.As(err, &protocolErr):
					t.Fatalf("arrival %d: %v, want a protocol error", i, err)
				case c.Error != nil:
					for _, word := range c.Error.Says {
						if !strings.Contains(protocolErr.Reason, word) {
							t.Errorf("%q does not say %s", protocolErr.Reason, word)
						}
					}
				}
			}
		})
	}
}

// TestLongFrameInPieces: the bytes of a long frame that have arrived are not moved at each read.
// With TLS, no read returns more than a record.
func TestLongFrameInPieces(t *testing.T) {
	const size, piece, limit = 32 << 20, 1 << 10, 5 * time.Second
	start := time.Now()
	arrival := readFunc(func(p []byte) (int, error) {
		if time.Since(start) > limit {
			return 0, os.ErrDeadlineExceeded
		}
		return min(len(p), piece), nil
	})
	in := binary.BigEndian.AppendUint32(nil, size)
	f := conn{conf: new(config), nc: stream{from: arrival}, maxIn: size, inBuf: in}
	if payload, err := f.nextFrame(); err != nil {
		t.Errorf("%d of %d bytes in %v", len(f.inBuf), size, limit)
	} else if len(payload) != size {
		t.Errorf("%d bytes", len(payload))
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
