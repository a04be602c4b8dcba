package result

import (
	"fmt"
	"slices"
)

// DescribeSpread describes the rates of several rounds: their median, the lowest and the highest. There
// must be at least one rate.
func DescribeSpread(rates []float64, unit string) string {
	rates = slices.Sorted(slices.Values(rates))
	n := len(rates)
	return fmt.Sprintf("median %.0f %s, %.0f to %.0f in %d rounds", rates[n/2], unit, rates[0], rates[n-1], n)
}
