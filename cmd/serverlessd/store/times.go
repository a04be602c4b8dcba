package store

import (
	"fmt"
	"time"
)

// timeForm is the format of times in all databases. As text, times in this format sort in order.
const timeForm = "2006-01-02 15:04:05.000"

// moment is a time in a column. NULL is the zero time.
type moment time.Time

// longAgo is the expiry of a lock that its daemon has given up. It is in the past for any clock.
var longAgo = time.Unix(0, 0)

func at(t time.Time) string { return t.UTC().Format(timeForm) }

// Scan implements sql.Scanner.
func (m *moment) Scan(from any) error {
	var s string
	switch v := from.(type) {
	case nil:
		*m = moment{}
		return nil
	case string:
		s = v
	case []byte:
		s = string(v)
	case time.Time:
		*m = moment(v.UTC())
		return nil
	default:
		return fmt.Errorf("a time cannot be read from a %T", from)
	}
	t, err := time.Parse(timeForm, s)
	*m = moment(t)
	return err
}

func (m moment) time() time.Time { return time.Time(m) }

// archiveYears is how many years the dt of an ended job is after its end. It is in years because a
// Duration cannot be longer than 292 years.
const archiveYears = 1000

func dtOfEnded(end time.Time) time.Time { return end.AddDate(archiveYears, 0, 0) }
