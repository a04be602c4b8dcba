package gloom

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

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
			stream, err := hex.DecodeString(c.Hex)
			if err != nil {
				t.Fatal(err)
			}
			arrivals := []io.Reader{iotest.OneByteReader(bytes.NewReader(stream)), iotest.HalfReader(bytes.NewReader(stream)),
				iotest.DataErrReader(bytes.NewReader(stream))}
			for cut := range len(stream) + 1 {
				arrivals = append(arrivals, io.MultiReader(bytes.NewReader(stream[:cut]), bytes.NewReader(stream[cut:])))
			}
			for i, arrival := range arrivals {
				f := frames{from: arrival, buf: make([]byte, 0, 1+i%64)} // small, so that it must grow and make room
				got, used := []string{}, 0
				var payload []byte
				var err error
				for payload, err = f.next(c.MaxFrame); err == nil; payload, err = f.next(c.MaxFrame) {
					got = append(got, string(payload))
					used += 4 + len(payload)
				}
				if !slices.Equal(got, c.Payloads) || len(stream)-used != c.Rest {
					t.Fatalf("arrival %d: cut into %q, %d bytes left; want %q, %d", i, got, len(stream)-used, c.Payloads, c.Rest)
				}
				var broken *ProtocolError
				switch {
				case c.Error == nil && (err != io.EOF || len(f.buf)-f.at != c.Rest):
					t.Fatalf("arrival %d: %v, holds %d bytes; want the end, %d", i, err, len(f.buf)-f.at, c.Rest)
				case c.Error != nil && !errors.As(err, &broken):
					t.Fatalf("arrival %d: %v, want a protocol error", i, err)
				case c.Error != nil:
					for _, word := range c.Error.Says {
						if !strings.Contains(broken.Reason, word) {
							t.Errorf("%q does not say %s", broken.Reason, word)
						}
					}
				}
			}
		})
	}
}
