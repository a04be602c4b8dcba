package load

import (
	"encoding/json"
	"testing"
)

func TestBodyHasItsSizeAndNumber(t *testing.T) {
	for _, size := range []int{MinBody, 16, 79, 80, 100, 1000, 1 << 20} {
		b, err := NewBody(size)
		if err != nil {
			t.Fatal(err)
		}
		n := makeNumber(7, 1234567, 89)
		p := b.Append(nil, n)
		if len(p) != size || b.Len() != size {
			t.Errorf("size %d: %d bytes, Len %d", size, len(p), b.Len())
		}
		if !json.Valid(p) {
			t.Errorf("size %d: not JSON: %.100s", size, p)
		}
		if got, ok := b.Number(p); !ok || got != n {
			t.Errorf("size %d: number %x, %v", size, got, ok)
		}
		if size > 2000 {
			continue
		}
		for i := range p { // any changed byte is noticed
			p[i] ^= 1
			if got, ok := b.Number(p); ok && got == n {
				t.Errorf("size %d: byte %d changed and not noticed", size, i)
			}
			p[i] ^= 1
		}
		if _, ok := b.Number(p[:len(p)-1]); ok {
			t.Errorf("size %d: cut and not noticed", size)
		}
	}
}

func TestBodyTooSmall(t *testing.T) {
	if _, err := NewBody(MinBody - 1); err == nil {
		t.Error("accepted")
	}
}
