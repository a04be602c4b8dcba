package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"gloom/cmd/internal/daemon"
)

// hostRest is how long no jobs of a language are taken after some could not begin on this host. They
// are given back without a try, and would otherwise be taken again at once.
const hostRest = time.Second

// hostState is why jobs of a language could not begin on this host, such as a full disk.
type hostState struct {
	err error
	at  time.Time
}

// noteHost records why jobs of a language could not begin on this host, and logs it once.
func (e *Engine) noteHost(lang string, err error) {
	e.mu.Lock()
	was := e.host[lang]
	e.host[lang] = hostState{err, time.Now()}
	e.mu.Unlock()
	if time.Since(was.at) > 2*hostRest {
		e.log.Error().Err(err).Str("lang", lang).Msg("jobs cannot begin on this host; they are given back, and tried again")
	}
}

// hostRests reports whether the daemon takes no jobs of a language, because some could not begin a
// moment ago.
func (e *Engine) hostRests(lang string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.host[lang].at) < hostRest
}

// hostHealth returns why jobs could not begin on this host a moment ago, or nil.
func (e *Engine) hostHealth() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []error
	for _, lang := range slices.Sorted(maps.Keys(e.host)) {
		if s := e.host[lang]; time.Since(s.at) < 2*hostRest { // after hostRest they are tried again
			all = append(all, fmt.Errorf("jobs of lang %s cannot begin on this host: %w", lang, s.err))
		}
	}
	return daemon.Reasons(all...)
}
