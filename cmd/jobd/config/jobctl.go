package config

import "math"

// Jobctl is the configuration of jobctl in its file. Options of the command line override it.
type Jobctl struct {
	Master   bool
	Host     string // default 127.0.0.1
	Port     int    // 0 means the default for the mode: WorkerPort or MasterPort
	Password string
	LogLevel string // one of Levels, default "warn"

	Warnings []string
}

// The daemons listen on these ports by default.
const (
	WorkerPort = 7080
	MasterPort = 7081
)

// DefaultJobctl returns the configuration without a file.
func DefaultJobctl() *Jobctl { return &Jobctl{Host: "127.0.0.1", LogLevel: "warn"} }

// LoadJobctl reads the configuration of jobctl.
func LoadJobctl(path string) (*Jobctl, error) { return load(path, readJobctl) }

func readJobctl(_ *document, r *reader) *Jobctl {
	byDefault := DefaultJobctl()
	c := &Jobctl{
		Master:   r.readBoolean("master"),
		Password: r.readText("password", ""),
		LogLevel: r.readText("log_level", byDefault.LogLevel),
		Host:     r.readText("host", byDefault.Host),
		Port:     r.readInteger("port", 0, 0, math.MaxUint16),
	}
	if err := CheckLevel(c.LogLevel); err != nil {
		r.fail("log_level", "'log_level': %w", err)
	}
	c.Warnings = r.warnUnknownKeys()
	return c
}
