package fleetprobe

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// trial is one attempt at a test. It keeps failures until it is known whether the machine was too
// busy. If the other brokers get no heartbeat from a broker for 1.5 s, they rightly count that
// broker as lost, and jobs lent to it run again.
type trial struct {
	*testing.T
	name   string
	faults []string
	ends   []func()
}

func (t *trial) Name() string       { return t.name }
func (t *trial) Cleanup(end func()) { t.ends = append(t.ends, end) }

func (t *trial) Error(args ...any) {
	_, file, line, _ := runtime.Caller(1)
	t.addFault(file, line, fmt.Sprint(args...))
}

func (t *trial) Errorf(format string, args ...any) {
	_, file, line, _ := runtime.Caller(1)
	t.addFault(file, line, fmt.Sprintf(format, args...))
}

func (t *trial) Fatal(args ...any) {
	_, file, line, _ := runtime.Caller(1)
	t.addFault(file, line, fmt.Sprint(args...))
	runtime.Goexit()
}

func (t *trial) Fatalf(format string, args ...any) {
	_, file, line, _ := runtime.Caller(1)
	t.addFault(file, line, fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (t *trial) addFault(file string, line int, name string) {
	place := ""
	for skip := 3; skip < 7; skip++ { // one of these stack frames is in the test
		if _, file, line, ok := runtime.Caller(skip); ok && strings.HasSuffix(file, "job_test.go") {
			place = fmt.Sprintf("%d, ", line)
		}
	}
	t.faults = append(t.faults, fmt.Sprintf("%s%s:%d: %s", place, file[strings.LastIndexByte(file, '/')+1:], line, name))
}

var trials atomic.Int64 // makes the names of each trial unique

// lossCount returns how often brokers of the shared fleet were considered lost.
func lossCount() (n int) {
	for _, b := range shared.fleet.brokers {
		n += strings.Count(b.daemon().Log.String(), "a broker is lost")
	}
	return n
}

// runUndisturbed runs a test on the shared fleet, and repeats it up to three times if a broker was
// considered lost during it.
func runUndisturbed(t *testing.T, do func(t *trial, a, b, c *broker)) {
	t.Parallel()
	brokers := awaitSharedFleet(t)
	for i := range 4 {
		before := lossCount()
		current := &trial{T: t, name: fmt.Sprintf("%s-%d", t.Name(), trials.Add(1))}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				for _, end := range slices.Backward(current.ends) {
					end()
				}
			}()
			do(current, brokers[0], brokers[1], brokers[2])
		}()
		<-done
		if len(current.faults) == 0 {
			return
		}
		if lossCount() == before || i == 3 {
			t.Error(strings.Join(current.faults, "\n"))
			return
		}
		t.Logf("once more: a broker was taken for lost meanwhile: %s", strings.Join(current.faults, "\n"))
		if err := shared.fleet.awaitWhole(); err != nil {
			t.Fatal(err)
		}
	}
}
