package guard

import (
	stdlog "log"
	"strings"

	"github.com/rs/zerolog"
)

// ErrorLog logs the errors that http.Server reports about peers.
func ErrorLog(log zerolog.Logger) *stdlog.Logger { return stdlog.New(warnWriter{log}, "", 0) }

// warnWriter logs each line that is written to it as a warning.
type warnWriter struct{ log zerolog.Logger }

func (w warnWriter) Write(p []byte) (int, error) {
	w.log.Warn().Str("from", "http").Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}
