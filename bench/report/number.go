package report

import (
	"math"
	"strconv"

	"github.com/dustin/go-humanize"

	"gloom/bench/result"
)

// formatValue formats a value with three or four significant digits.
func formatValue(x float64, u result.Unit) string {
	switch u {
	case result.Nanoseconds:
		return formatDuration(x)
	case result.Bytes:
		return formatBytes(x)
	case result.Processors:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return formatThousands(x)
}

func formatDuration(ns float64) string {
	switch {
	case ns < 999_500:
		return formatDigits(ns/1e3) + " µs"
	case ns < 999.5e6:
		return formatDigits(ns/1e6) + " ms"
	}
	return formatDigits(ns/1e9) + " s"
}

func formatBytes(b float64) string {
	switch a := math.Abs(b); {
	case a < 10_000:
		return formatThousands(b) + " B"
	case a < 10<<20:
		return formatDigits(b/(1<<10)) + " KiB"
	}
	return formatDigits(b/(1<<20)) + " MiB"
}

// formatDigits keeps three significant digits.
func formatDigits(x float64) string {
	switch a := math.Abs(x); {
	case a < 9.995:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case a < 99.95:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	return formatThousands(x)
}

// formatThousands groups digits; large numbers keep four digits, because no run reproduces more.
func formatThousands(x float64) string {
	if a := math.Abs(x); a >= 10_000 {
		unit := math.Pow(10, math.Floor(math.Log10(a))-3)
		x = math.Round(x/unit) * unit
	}
	return humanize.Commaf(math.RoundToEven(x))
}
