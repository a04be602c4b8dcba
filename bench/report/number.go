package report

import (
	"math"
	"strconv"
	"strings"

	"gloom/bench/result"
)

// figure formats a value with three or four significant digits.
func figure(x float64, u result.Unit) string {
	switch u {
	case result.Nanoseconds:
		return duration(x)
	case result.Bytes:
		return size(x)
	case result.Processors:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return thousands(x)
}

func duration(ns float64) string {
	switch {
	case ns < 999_500:
		return digits(ns/1e3) + " µs"
	case ns < 999.5e6:
		return digits(ns/1e6) + " ms"
	}
	return digits(ns/1e9) + " s"
}

func size(b float64) string {
	switch a := math.Abs(b); {
	case a < 10_000:
		return thousands(b) + " B"
	case a < 10<<20:
		return digits(b/(1<<10)) + " KiB"
	}
	return digits(b/(1<<20)) + " MiB"
}

// digits keeps three significant digits.
func digits(x float64) string {
	switch a := math.Abs(x); {
	case a < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return thousands(x)
}

// thousands groups digits; large numbers keep four digits, because no run reproduces more.
func thousands(x float64) string {
	if a := math.Abs(x); a >= 10_000 {
		unit := math.Pow(10, math.Floor(math.Log10(a))-3)
		x = math.Round(x/unit) * unit
	}
	return grouped(strconv.FormatFloat(x, 'f', 0, 64))
}

// grouped puts commas between the thousands of a number's whole part.
func grouped(s string) string {
	sign, fraction := "", ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	if i := strings.IndexByte(s, '.'); i >= 0 {
		s, fraction = s[:i], s[i:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s + fraction
}
