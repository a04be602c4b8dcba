// Package door has what the measurements of the doors (jobd, jq-master, serverlessd) share: their
// command, the meter of processor time, and an HTTP client that is cheaper than the daemon under
// measurement.
package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"gloom/bench/proc"
	"gloom/bench/result"
)

// Command completes a subcommand of gloom-bench: it adds the flag --out after those that cmd has
// already. measure prints its figures to w and returns a report. The report is written to the file
// named by --out, even after an error; if the report is nil, no file is written.
func Command(cmd *cobra.Command, measure func(ctx context.Context, w io.Writer) (report any, err error)) *cobra.Command {
	var out string
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		report, err := measure(cmd.Context(), cmd.OutOrStdout())
		if report != nil {
			err = errors.Join(err, result.WriteJSON(out, report))
		}
		return err
	}
	cmd.Flags().StringVar(&out, "out", "", "write the figures to this `file`, as JSON")
	return cmd
}

// AtLeast returns an error if the value of an option is too small.
func AtLeast(minimum int, name string, value int) error {
	if value < minimum {
		return fmt.Errorf("%s %d: must be at least %d", name, value, minimum)
	}
	return nil
}

// Meter measures the time and the processor time (user and system) between its start and its end.
type Meter struct {
	start                    time.Time
	daemons                  []int // process ids, 0 for one that is not known
	daemonsBefore            []time.Duration
	ownBefore, machineBefore time.Duration

	Elapsed   time.Duration
	DaemonCPU []time.Duration // in the order of the ids; 0 for an unknown one
	OwnCPU    time.Duration
	OthersCPU float64 // processors that other programs kept busy
}

// StartMeter starts a meter for the daemons with these process ids.
func StartMeter(daemons ...int) *Meter {
	return &Meter{daemons: daemons, daemonsBefore: cpuTimes(daemons), ownBefore: proc.OwnCPU(), machineBefore: proc.MachineCPU(), start: time.Now()}
}

// Stop ends the measurement. child is the processor time of the child processes of this process; it
// counts as this process's own.
func (m *Meter) Stop(child time.Duration) {
	m.Elapsed = time.Since(m.start)
	m.OwnCPU = proc.OwnCPU() - m.ownBefore + child
	others := -m.machineBefore - m.OwnCPU
	m.DaemonCPU = cpuTimes(m.daemons)
	for i := range m.DaemonCPU {
		m.DaemonCPU[i] -= m.daemonsBefore[i]
		others -= m.DaemonCPU[i]
	}
	m.OthersCPU = max(0, (others+proc.MachineCPU()).Seconds()/m.Elapsed.Seconds())
}

func cpuTimes(pids []int) []time.Duration {
	out := make([]time.Duration, len(pids))
	for i, pid := range pids {
		out[i], _ = proc.CPU(pid) // 0 for a process that is unknown or gone
	}
	return out
}

// PerJob divides a duration by the number of jobs, and returns microseconds.
func PerJob(d time.Duration, jobs int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(jobs)
}
