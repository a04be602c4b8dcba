package main

import (
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// logRate is how many lines a second may be logged below error, after a burst
// of as many; a flood of bad peers must not become a flood of lines.
const logRate = 100

// rateLimit drops lines beyond a rate. What was dropped is said by the next
// line that passes.
type rateLimit struct {
	mu      sync.Mutex
	rate    float64
	tokens  float64
	last    time.Time
	dropped int
}

func newRateLimit(rate float64) *rateLimit {
	return &rateLimit{rate: rate, tokens: rate, last: time.Now()}
}

// Run implements zerolog.Hook.
func (r *rateLimit) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if level >= zerolog.ErrorLevel {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.tokens = min(r.rate, r.tokens+now.Sub(r.last).Seconds()*r.rate)
	r.last = now
	if r.tokens < 1 {
		r.dropped++
		e.Discard()
		return
	}
	r.tokens--
	if r.dropped > 0 {
		e.Int("lines_dropped", r.dropped)
		r.dropped = 0
	}
}
