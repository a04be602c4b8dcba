//go:build !linux

package store

import "time"

var began = time.Now()

// Uptime returns the time since some moment in the past.
func Uptime() time.Duration { return time.Since(began) }
