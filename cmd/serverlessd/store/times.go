package store

import (
	"fmt"
	"time"
)

// timeLayout is the format of times in all databases. As text, times in this format sort in order.
const timeLayout = "2006-01-02 15:04:05.000"

// sqlTime is a time in a column. NULL is the zero time.
type sqlTime time.Time

// longPast is the expiry of a lock that its daemon has given up. It is in the past for any clock.
var longPast = time.Unix(0, 0)

func formatTime(t time.Time) string { return t.UTC().Format(timeLayout) }

// Scan implements sql.Scanner.
func (m *sqlTime) Scan(from any) error {
	var s string
	switch v := from.(type) {
	case nil:
		*m = sqlTime{}
		return nil
	case string:
		s = v
	case []byte:
		s = string(v)
	default:
		return fmt.Errorf("a time cannot be read from a %T", from)
	}
	t, err := time.Parse(timeLayout, s)
	*m = sqlTime(t)
	return err
}

func (m sqlTime) time() time.Time { return time.Time(m) }

// archiveYears is the number of years from the end of a job to the dt of its row. The unit is
// years, because a Duration cannot be longer than 292 years.
const archiveYears = 1000

func dueOfEnded(end time.Time) time.Time { return end.AddDate(archiveYears, 0, 0) }
