package load

import (
	"fmt"
	"time"
)

// Config describes a run. A field that is zero is not used, unless its comment says otherwise.
type Config struct {
	Protocol   Protocol
	SubmitAddr string // "host:port" or "unix:/path"
	WorkerAddr string // like SubmitAddr; may be several, separated by commas, to which workers connect in turn

	Submitters     int           // 1 … MaxSubmitters
	FirstSubmitter int           // index of the first submitter: two generators on one server must not share ids
	Window         int           // jobs outstanding per submitter, 1 … MaxOutstanding
	Workers        int           // connections that do the work
	IdleWorkers    int           // more workers, for a type without jobs
	Type           string        // name of the job type, or the beginning of their names; default echo
	Types          int           // job types, at most as many as workers unless these are Versatile
	Versatile      bool          // each worker serves all types, by a pattern
	Groups         int           // number of groups; each job belongs to one, evenly; 0: none
	Priorities     int           // jobs get priorities 0 … Priorities-1 evenly; 1: none is sent
	BodySize       int           // bytes, at least MinBody
	WorkTime       time.Duration // how long a worker keeps each job
	Prefetch       int           // jobs out per worker connection; 0: the plain protocol
	Loops          int           // event loops (threads) of the generator
	Seed           uint64        // seed of all random numbers

	// MayFail says that an error of the server may end a job and is no fault, as when workers are
	// killed.
	MayFail bool
}

// Validate returns an error for the first field that is out of range.
func (c *Config) Validate() error {
	for _, f := range []struct {
		name          string
		value, lo, hi int
	}{
		{"submitters", c.Submitters, 1, MaxSubmitters},
		{"first submitter", c.FirstSubmitter, 0, MaxSubmitters - c.Submitters},
		{"window", c.Window, 1, MaxOutstanding},
		{"workers", c.Workers, 1, 1 << 20},
		{"idle workers", c.IdleWorkers, 0, 1 << 20},
		{"types", c.Types, 1, c.maxTypes()},
		{"groups", c.Groups, 0, 1 << 20},
		{"priorities", c.Priorities, 1, 1 << 30},
		{"body size", c.BodySize, MinBody, 1 << 30},
		{"prefetch", c.Prefetch, 0, 1 << 20},
		{"generator loops", c.Loops, 1, min(256, c.Submitters)},
	} {
		if f.value < f.lo || f.value > f.hi {
			return fmt.Errorf("%s %d: must be %d … %d", f.name, f.value, f.lo, f.hi)
		}
	}
	if c.WorkTime < 0 {
		return fmt.Errorf("work time %v: must not be negative", c.WorkTime)
	}
	if c.Prefetch > 0 && !c.Protocol.Prefetch {
		return fmt.Errorf("prefetch %d: this server has no prefetch", c.Prefetch)
	}
	if (c.Groups > 0 || c.Versatile) && !c.Protocol.Groups {
		return fmt.Errorf("groups %d, versatile workers %v: this server has neither", c.Groups, c.Versatile)
	}
	return nil
}

func (c *Config) maxTypes() int {
	if c.Versatile {
		return 100_000
	}
	return c.Workers
}

// typeName returns the name of job type i.
func (c *Config) typeName(i int) string {
	if c.Types == 1 {
		return c.baseName()
	}
	return fmt.Sprintf("%s-%05d", c.baseName(), i)
}

func (c *Config) baseName() string {
	if c.Type == "" {
		return "echo"
	}
	return c.Type
}

// IdleType is the type of idle workers, which gets no jobs.
const IdleType = "idle"
