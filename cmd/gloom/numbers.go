package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// formatSpan formats a duration for people, with at most two units.
func formatSpan(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case seconds <= 0:
		return "0s"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return strconv.FormatFloat(seconds, 'f', 1, 64) + "s"
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// formatShortSpan formats a duration in at most six characters.
func formatShortSpan(seconds float64) string {
	micros := seconds * 1e6
	switch {
	case micros < 1000:
		return fmt.Sprintf("%.0fµs", micros)
	case micros < 10_000:
		return fmt.Sprintf("%.1fms", micros/1e3)
	case micros < 1e6:
		return fmt.Sprintf("%.0fms", micros/1e3)
	case seconds < 10:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return formatSpan(seconds)
}

// formatShortRate formats a rate for people, in at most five characters.
func formatShortRate(r float64) string {
	switch {
	case r <= 0:
		return "0"
	case r < 9.95:
		return strconv.FormatFloat(r, 'f', 1, 64)
	}
	return formatCount(uint64(math.Round(r)))
}

// formatCount formats a number in at most six characters.
func formatCount(n uint64) string {
	switch {
	case n < 1_000_000:
		return strconv.FormatUint(n, 10)
	case n < 100_000_000:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M"
	case n < 10_000_000_000:
		return strconv.FormatUint(n/1_000_000, 10) + "M"
	}
	return strconv.FormatUint(n/1_000_000_000, 10) + "G"
}

func formatBytes(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// field is a line of an explanation.
type field struct{ name, value string }

// fieldTable formats names and values in two columns.
func fieldTable(f []field) string {
	width := 0
	for _, x := range f {
		width = max(width, len(x.name))
	}
	var b strings.Builder
	for _, x := range f {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, x.name, x.value)
	}
	return b.String()
}
