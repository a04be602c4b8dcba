package job

import (
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
)

// ID names a job or a worker: a UUIDv7. The zero ID means none.
type ID [16]byte

// NewID returns an id that is larger than this process's ids of earlier milliseconds.
func NewID() ID { return ID(uuid.Must(uuid.NewV7())) }

// ParseID reads an id in the only valid form: 36 characters, lower case.
func ParseID(s string) (id ID, ok bool) {
	u, err := uuid.Parse(s)
	id = ID(u)
	var buf [36]byte
	if err != nil || string(id.Append(buf[:0])) != s {
		return ID{}, false
	}
	return id, true
}

// Append appends the id in its text form.
func (id ID) Append(dst []byte) []byte {
	dst = hex.AppendEncode(dst, id[:4])
	for _, part := range [...][]byte{id[4:6], id[6:8], id[8:10], id[10:]} {
		dst = hex.AppendEncode(append(dst, '-'), part)
	}
	return dst
}

func (id ID) String() string {
	var buf [36]byte
	return string(id.Append(buf[:0]))
}

// MarshalText writes the form that String returns.
func (id ID) MarshalText() ([]byte, error) { return id.Append(nil), nil }

// UnmarshalText reads the form that String returns.
func (id *ID) UnmarshalText(text []byte) error {
	var ok bool
	if *id, ok = ParseID(string(text)); !ok {
		return fmt.Errorf("%q is not an id", text)
	}
	return nil
}

// IsZero reports whether the id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }
