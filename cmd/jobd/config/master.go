package config

import (
	"time"
)

// Master is the configuration of jobd-master.
type Master struct {
	Server Server
	Log    Log

	PingInterval         time.Duration // time between two pings to a worker
	PokeThrottleInterval time.Duration // minimum time between two rounds of polls
	WorkerTimeout        time.Duration // how long a worker may delay the answer to a client's request
	HTTPAddr             string        // address of the page, metrics and health; "" for none

	Warnings []string
}

// LoadMaster reads the configuration of jobd-master.
func LoadMaster(path string) (*Master, error) { return load(path, readMaster) }

func readMaster(_ *document, r *reader) *Master {
	m := &Master{
		Server:               r.readServer(),
		PingInterval:         r.readSeconds("ping_interval", "an integer", 30*time.Second, 100*time.Millisecond),
		PokeThrottleInterval: r.readSeconds("poke_throttle_interval", "a float", 500*time.Millisecond, 0),
		Log:                  r.readLog(),
		WorkerTimeout:        r.readSeconds("worker_timeout", "a number", 5*time.Second, 10*time.Millisecond),
		HTTPAddr:             r.readText("http_addr", ""),
	}
	m.Warnings = r.warnUnknownKeys()
	return m
}
