// Package serverless measures the serverless queue: how fast lines are accepted, and how fast
// handlers run them. At the end it compares the number of jobs with the number of accepted
// lines.
package serverless

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gloom/bench/door"
)

// shapes lists the shapes of load in the order in which they run.
var shapes = []string{"lone", "add", "batch", "first", "http", "node", "python", "sh"}

// Options says what to measure.
type Options struct {
	Shapes  []string
	Program string        // serverlessd; "" finds or builds one
	Store   string        // address; "" is SQLite in the daemon's directory
	Clients int           // connections that add
	Lines   int           // lines in a request of the shape batch
	Time    time.Duration // duration of a shape that adds lines
	Jobs    int           // jobs that a handler runs
	Rounds  int
}

// DefaultOptions returns the options of the published figures.
func DefaultOptions() Options {
	return Options{Shapes: shapes, Clients: 32, Lines: 1000, Time: 5 * time.Second, Jobs: 20_000, Rounds: 3}
}

// Validate returns an error for the first option that is out of range.
func (o Options) Validate() error {
	for _, s := range o.Shapes {
		if !slices.Contains(shapes, s) {
			return fmt.Errorf("shape %q must be one of %s", s, strings.Join(shapes, ", "))
		}
	}
	if o.Time < 100*time.Millisecond {
		return fmt.Errorf("time %v: must be at least 100ms", o.Time)
	}
	return cmp.Or(door.AtLeast(1, "clients", o.Clients), door.AtLeast(1, "lines", o.Lines), door.AtLeast(1, "jobs", o.Jobs), door.AtLeast(1, "rounds", o.Rounds))
}
