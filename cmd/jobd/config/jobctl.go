package config

import "math"

// Jobctl is the configuration of jobctl, from its file, before the options of the
// command line.
type Jobctl struct {
	Master   bool
	Host     string // default 127.0.0.1
	Port     int    // 0 is the default of the mode: WorkerPort or MasterPort
	Password string
	LogLevel string // one of Levels, default "warn"

	Warnings []string
}

// The ports that the daemons listen on by convention.
const (
	WorkerPort = 7080
	MasterPort = 7081
)

// DefaultJobctl is the configuration without a file.
func DefaultJobctl() *Jobctl { return &Jobctl{Host: "127.0.0.1", LogLevel: "warn"} }

// LoadJobctl reads the configuration of jobctl.
func LoadJobctl(path string) (*Jobctl, error) {
	_, r, err := open(path)
	if err != nil {
		return nil, err
	}
	c := readJobctl(r)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

func readJobctl(r *reader) *Jobctl {
	byDefault := DefaultJobctl()
	c := &Jobctl{
		Master:   r.boolean("master"),
		Password: r.text("password", ""),
		LogLevel: r.text("log_level", byDefault.LogLevel),
		Host:     r.text("host", byDefault.Host),
		Port:     r.integer("port", 0, 0, math.MaxUint16),
	}
	if err := CheckLevel(c.LogLevel); err != nil {
		r.fail("log_level", "'log_level': %w", err)
	}
	c.Warnings = r.unknown()
	return c
}
