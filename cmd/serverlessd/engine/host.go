package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"gloom/cmd/internal/daemon"
)

// For hostPause no jobs of a language are taken after some jobs of that language could not begin on
// this host. Jobs that could not begin are given back, and do not lose a try. Without the pause
// they would be taken again at once.
const hostPause = time.Second

// hostError says why jobs of a language could not begin on this host, such as a full disk.
type hostError struct {
	err    error
	lastAt time.Time
}

// noteHostError records why jobs of a language could not begin on this host, and logs it once.
func (e *Engine) noteHostError(lang string, err error) {
	e.mu.Lock()
	oldError := e.hostErrors[lang]
	e.hostErrors[lang] = hostError{err, time.Now()}
	e.mu.Unlock()
	if time.Since(oldError.lastAt) > 2*hostPause {
		e.log.Error().Err(err).Str("lang", lang).Msg("jobs cannot begin on this host; they are given back, and tried again")
	}
}

// isHostPaused reports whether the daemon takes no jobs of a language, because some could not begin
// a moment ago.
func (e *Engine) isHostPaused(lang string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.hostErrors[lang].lastAt) < hostPause
}

// hostHealth returns why jobs could not begin on this host a moment ago, or nil.
func (e *Engine) hostHealth() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []error
	for _, lang := range slices.Sorted(maps.Keys(e.hostErrors)) {
		if s := e.hostErrors[lang]; time.Since(s.lastAt) < 2*hostPause { // jobs are tried again after hostPause
			all = append(all, fmt.Errorf("jobs of lang %s cannot begin on this host: %w", lang, s.err))
		}
	}
	return daemon.JoinReasons(all...)
}
