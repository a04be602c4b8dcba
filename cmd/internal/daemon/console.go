package daemon

import (
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/cli"
)

// consoleTimeout is how long a line waits for a console whose reader has stopped reading, and
// fileTimeout how long it waits for a slow file.
const (
	consoleTimeout = 100 * time.Millisecond
	fileTimeout    = time.Second
)

// errorOutput gets the errors of writes, as of a full disk.
var errorOutput = cli.NewLossyWriter(os.Stderr, consoleTimeout)

func init() {
	zerolog.ErrorHandler = func(err error) { fmt.Fprintf(errorOutput, "cannot write the log: %v\n", err) }
}
