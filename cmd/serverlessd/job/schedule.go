package job

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"gloom/cmd/internal/schedule"
)

// ScheduledID returns the id of the job that a schedule makes for a due time. The same arguments
// always give the same id.
func ScheduledID(key schedule.Key, due time.Time) ID {
	sum := sha256.Sum256([]byte(key.Client + "\x00" + key.Name))
	var sysid [sysidLen]byte
	for i := range sysid {
		sysid[i] = digits[sum[i]&31]
	}
	seq := int64(sum[8])<<16 | int64(sum[9])<<8 | int64(sum[10])
	return makeID(min(max(due.UnixMilli(), 0), maxMS), string(sysid[:]), seq)
}

// ParseScheduled parses the job of a schedule, {"type":TYPE,"payload":STRING}. The payload must be
// a valid line of an add, or empty. An error is a *schedule.FieldError.
func ParseScheduled(text json.RawMessage, maxLine int) (l Line, err error) {
	refuse := func(field, format string, args ...any) (Line, error) {
		return l, &schedule.FieldError{Field: strings.TrimSuffix("job."+field, "."), Reason: fmt.Sprintf(format, args...)}
	}
	var fields struct {
		Type    *string `json:"type"`
		Payload string  `json:"payload"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var kind *json.UnmarshalTypeError
	switch err := d.Decode(&fields); {
	case errors.As(err, &kind) && kind.Field != "":
		return refuse(kind.Field, "job.%s must be a string, not a %s", kind.Field, kind.Value)
	case err != nil:
		return refuse("", "job must be an object with type and payload, and nothing else: %.60q", text)
	case fields.Type == nil:
		return l, &schedule.FieldError{IsMissing: true, Field: "job.type", Reason: "job.type is missing"}
	}
	if err := CheckType(*fields.Type); err != nil {
		return refuse("type", "job.type: %v", err)
	}
	switch {
	case len(fields.Payload) > maxLine:
		return refuse("payload", "job.payload has %d bytes; at most %d are allowed (--max-line)", len(fields.Payload), maxLine)
	case strings.Contains(fields.Payload, "\n"):
		return refuse("payload", "job.payload has a newline; a payload is one line")
	}
	return Line{Type: *fields.Type, Payload: []byte(fields.Payload)}, nil
}
