package job

import (
	"crypto/sha256"
	"time"
)

// ScheduledID returns the id of the job that a schedule makes at a due time. The same arguments
// always give the same id, a valid UUIDv7 of that time.
func ScheduledID(namespace, schedule string, due time.Time) (id ID) {
	sum := sha256.Sum256([]byte(namespace + "\x00" + schedule))
	copy(id[:], sum[:])
	at := max(due.UnixMilli(), 0)
	for i := range 6 {
		id[i] = byte(at >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}
