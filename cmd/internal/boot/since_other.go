//go:build !linux

package boot

import "time"

var began = time.Now()

// Since returns the time since some moment in the past.
func Since() time.Duration { return time.Since(began) }
