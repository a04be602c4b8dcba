// Package jobd measures the MySQL bridge: how many rows per second go from waiting to done, through
// the broker and back. Every row is checked at the end. It starts a MariaDB of its own, at
// MariaDB's default durability, unless it is given a server.
package jobd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"gloom/bench/door"
	"gloom/cmd/jobd/config"
)

// These are the ways to run rows.
const (
	// ModeBridge uses the bridge (jobd) and workers that answer at once.
	ModeBridge = "bridge"
	// ModeLaunch uses the bridge and starts a process for each row.
	ModeLaunch = "launch"
	// ModeOriginal uses neither bridge nor broker. It works as the original jobd's documentation
	// describes: one connection, and one UPDATE for each state of each row.
	ModeOriginal = "original"
)

// Options says what to measure.
type Options struct {
	Mode        string
	Rows        int // per round
	Backlog     int // rows of another target that wait all the time
	Targets     int
	Concurrency int // of each target
	FetchLimit  int // mysql_fetch_limit
	Rounds      int
	Command     string        // launcher of ModeLaunch
	Answer      int           // bytes of a worker's answer
	Timeout     time.Duration // per round

	// MySQL is a server to use; with an empty user one is started. Its database
	// must exist, and tables of ours in it are dropped.
	MySQL config.MySQL
}

// DefaultOptions returns the options of the published figures: 4 targets, and
// up to 64 running rows of each.
func DefaultOptions() Options {
	return Options{
		Mode: ModeBridge, Rows: 50_000, Targets: 4, Concurrency: 64, FetchLimit: 100, Rounds: 3,
		Command: "true", Answer: 2, Timeout: 5 * time.Minute,
	}
}

// Validate returns an error for the first option that is out of range.
func (o Options) Validate() error {
	switch {
	case !slices.Contains([]string{ModeBridge, ModeLaunch, ModeOriginal}, o.Mode):
		return fmt.Errorf("mode '%s' must be one of %s, %s, %s", o.Mode, ModeBridge, ModeLaunch, ModeOriginal)
	case o.Mode == ModeLaunch && o.Command == "":
		return errors.New("command is empty")
	}
	return cmp.Or(door.AtLeast(1, "rows", o.Rows), door.AtLeast(1, "targets", o.Targets), door.AtLeast(1, "concurrency", o.Concurrency), door.AtLeast(1, "rounds", o.Rounds),
		door.AtLeast(0, "fetch-limit", o.FetchLimit), door.AtLeast(0, "backlog", o.Backlog), door.AtLeast(0, "answer", o.Answer))
}
