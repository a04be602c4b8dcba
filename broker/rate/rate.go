// Package rate writes rates as a person would: in jobs per second, minute or hour.
package rate

import (
	"math"
	"strconv"
)

// units are the units of a rate for people.
var units = []struct {
	seconds       float64
	short, phrase string
}{{1, "/s", " a second"}, {60, "/m", " a minute"}, {3600, "/h", " an hour"}}

// split returns a rate of jobs per second in the shortest unit in which it is at least 1 and has
// at most two decimals. A rate of 0.0166667 is 1 per minute. Only of a number below 1,000 are digits
// left out, from the seventh on.
func split(perSecond float64) (number, short, phrase string) {
	chosen := len(units) - 1
	for i, u := range units {
		n := perSecond * u.seconds
		if n >= 0.999999 && math.Abs(n*100-math.Round(n*100)) <= 1e-4 {
			chosen = i
			break
		}
		if n >= 1 {
			chosen = min(chosen, i)
		}
	}
	u, digits := units[chosen], 6
	if perSecond*u.seconds >= 1000 {
		digits = 12
	}
	n, _ := strconv.ParseFloat(strconv.FormatFloat(perSecond*u.seconds, 'g', digits, 64), 64)
	return strconv.FormatFloat(n, 'f', -1, 64), u.short, u.phrase
}

// Flag returns a rate of jobs per second as gloom limit --rate takes it, such as 30/m.
func Flag(perSecond float64) string {
	number, short, _ := split(perSecond)
	return number + short
}

// Text returns a rate of jobs per second as a phrase, such as "30 jobs a minute".
func Text(perSecond float64) string {
	number, _, phrase := split(perSecond)
	if number == "1" {
		return "1 job" + phrase
	}
	return number + " jobs" + phrase
}
