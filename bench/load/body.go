package load

import (
	"bytes"
	"fmt"
)

// MinBody is the smallest body in bytes: a JSON string with a job's number.
const MinBody = NumberLen + 2

// richBody is the smallest size of a body that is a JSON object with values of all types.
const richBody = 80

// Body makes and recognises the bodies of a run. All have the same size and carry their
// job's number, so no two of them are the same bytes.
type Body struct {
	head, tail []byte // around the number
}

// NewBody makes bodies of size bytes, at least MinBody.
func NewBody(size int) (*Body, error) {
	if size < MinBody {
		return nil, fmt.Errorf("body size %d: must be at least %d", size, MinBody)
	}
	b := &Body{head: []byte(`"`)}
	end := `"`
	if size >= richBody {
		b.head = []byte(`{"job":"`)
		// The notation reveals a server that decodes and encodes a body.
		b.tail = []byte(`","list":[1,-2.50E+3,null,true],"text":"caf\u00e9 `)
		end = `"}`
	}
	const filler = "the quick brown fox jumps over the lazy dog, "
	for i := 0; len(b.head)+NumberLen+len(b.tail)+len(end) < size; i++ {
		b.tail = append(b.tail, filler[i%len(filler)])
	}
	b.tail = append(b.tail, end...)
	return b, nil
}

// Len returns the size of every body in bytes.
func (b *Body) Len() int { return len(b.head) + NumberLen + len(b.tail) }

// Append appends the body of job n.
func (b *Body) Append(dst []byte, n Number) []byte {
	dst = append(dst, b.head...)
	dst = n.Append(dst)
	return append(dst, b.tail...)
}

// Number returns the number in a body, and false if any byte is not as sent.
func (b *Body) Number(p []byte) (Number, bool) {
	h := len(b.head)
	if len(p) != b.Len() || !bytes.Equal(p[:h], b.head) || !bytes.Equal(p[h+NumberLen:], b.tail) {
		return 0, false
	}
	return ParseNumber(p[h : h+NumberLen])
}
