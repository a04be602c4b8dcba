package pack

import (
	"time"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
)

// AppendID appends an id, a string.
func AppendID(dst []byte, id job.ID) []byte {
	var buf [36]byte
	return msgp.AppendStringFromBytes(dst, id.Append(buf[:0]))
}

// AppendTime appends a moment in milliseconds since 1970, a string as ISO 8601
// writes it.
func AppendTime(dst []byte, milliseconds int64) []byte {
	var buf [32]byte
	return msgp.AppendStringFromBytes(dst, time.UnixMilli(milliseconds).UTC().AppendFormat(buf[:0], "2006-01-02T15:04:05.000Z07:00"))
}
