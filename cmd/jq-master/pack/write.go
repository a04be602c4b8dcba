package pack

import (
	"time"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
)

// AppendID appends an id as a string.
func AppendID(dst []byte, id job.ID) []byte {
	var buf [36]byte
	return msgp.AppendStringFromBytes(dst, id.Append(buf[:0]))
}

// AppendSeconds appends a span in seconds, as an integer if it has no fraction.
func AppendSeconds(dst []byte, s job.Span) []byte {
	if s%1000 == 0 {
		return msgp.AppendUint64(dst, uint64(s/1000))
	}
	return msgp.AppendFloat64(dst, s.Seconds())
}

// AppendTime appends a time, in milliseconds since 1970, as a string in ISO 8601.
func AppendTime(dst []byte, milliseconds int64) []byte {
	var buf [40]byte
	at := time.UnixMilli(milliseconds).UTC()
	b := at.AppendFormat(buf[:0], time.RFC3339) // AppendFormat has a fast path only for this layout
	ms := at.Nanosecond() / 1e6
	b = append(b[:len(b)-1], '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
	return msgp.AppendStringFromBytes(dst, b)
}
