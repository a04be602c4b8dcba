package main

import (
	"fmt"
	"testing"
	"time"
)

// TestFailureReports: the first failure of a type is reported. Later failures are reported at most
// once an interval, with the number of failures since the last report. Types beyond a number are
// reported together.
func TestFailureReports(t *testing.T) {
	reporter := &workReporter{failures: map[string]*failureReport{}}
	now := time.Unix(0, 0)
	expect := func(typ string, hiddenCount int, reported bool) {
		t.Helper()
		if n, ok := reporter.shouldReport(typ, now); n != hiddenCount || ok != reported {
			t.Errorf("%s: %d hidden, %t; want %d, %t", typ, n, ok, hiddenCount, reported)
		}
	}
	expect("mail", 0, true)
	expect("report", 0, true)
	for range 3 {
		expect("mail", 0, false)
	}
	now = now.Add(failureInterval)
	expect("mail", 3, true)
	expect("mail", 0, false)
	expect("report", 0, true)
	for i := range maxFailureTypes - 2 {
		expect(fmt.Sprint(i), 0, true)
	}
	expect("one more", 0, true)
	expect("and another", 0, false)
	if n := len(reporter.failures); n > maxFailureTypes+1 {
		t.Errorf("%d types", n)
	}
}
