package finding

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// Plural returns a count of things: "1 job", "3 jobs".
func Plural[N int | int64 | uint64](n N, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return humanize.Comma(int64(n)) + " " + what + "s"
}

// JobsWaiting returns a clause: "1 job is waiting", "3 jobs are waiting".
func JobsWaiting[N int | int64 | uint64](n N) string {
	if n == 1 {
		return "1 job is waiting"
	}
	return Plural(n, "job") + " are waiting"
}

// DrainTime returns a sentence with the time in which n jobs will be done, or "" if the rate is 0
// (unknown).
func DrainTime[N int | int64 | uint64](n N, perSecond float64) string {
	if perSecond <= 0 {
		return ""
	}
	return fmt.Sprintf("At this rate they will be done in %v. ", (time.Duration(float64(n) / perSecond * float64(time.Second))).Round(time.Second))
}
