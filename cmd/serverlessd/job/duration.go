package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// Duration is a length of time that is written as 250ms, 30s, 5m, 6h, 14d, or a number of
// milliseconds.
type Duration time.Duration

const day = 24 * time.Hour

var (
	durationPattern = regexp.MustCompile(`^([0-9]+)(ms|s|m|h|d)?$`)
	units           = map[string]time.Duration{"": time.Millisecond, "ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": day}
)

// ParseDuration parses a duration.
func ParseDuration(s string) (time.Duration, error) {
	m := durationPattern.FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("%.40q is not a duration; write 250ms, 30s, 5m, 6h, 14d, or a number of milliseconds", s)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if unit := units[m[2]]; err != nil || n > math.MaxInt64/int64(unit) {
		return 0, fmt.Errorf("duration %.40q is too long", s)
	}
	return time.Duration(n) * units[m[2]], nil
}

func (d Duration) String() string {
	t := time.Duration(d)
	for _, u := range []string{"d", "h", "m", "s"} {
		if t > 0 && t%units[u] == 0 {
			return strconv.FormatInt(int64(t/units[u]), 10) + u
		}
	}
	return strconv.FormatInt(t.Milliseconds(), 10) + "ms"
}

// Set implements pflag.Value.
func (d *Duration) Set(s string) error {
	t, err := ParseDuration(s)
	if err == nil {
		*d = Duration(t)
	}
	return err
}

// Type implements pflag.Value.
func (Duration) Type() string { return "duration" }

// Milliseconds is a length of time that answers show as a number of milliseconds.
type Milliseconds time.Duration

// MarshalJSON writes the number of milliseconds.
func (d Milliseconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, time.Duration(d).Milliseconds(), 10), nil
}

// MarshalJSON writes a duration as a string.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// UnmarshalJSON reads a string or a number of milliseconds.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s := string(bytes.TrimSpace(b))
	if len(s) > 0 && s[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	}
	return d.Set(s)
}
