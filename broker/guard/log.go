package guard

import (
	stdlog "log"
	"strings"

	"github.com/rs/zerolog"
)

// ErrorLog takes what http.Server has to say of its peers.
func ErrorLog(log zerolog.Logger) *stdlog.Logger { return stdlog.New(warnings{log}, "", 0) }

type warnings struct{ log zerolog.Logger }

func (w warnings) Write(p []byte) (int, error) {
	w.log.Warn().Str("from", "http").Msg(strings.TrimSpace(string(p)))
	return len(p), nil
}
