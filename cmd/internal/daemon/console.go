package daemon

import (
	"fmt"
	"os"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/cli"
)

// How long a line waits for a console whose reader has stopped reading, or for a slow file.
const (
	consolePatience = 100 * time.Millisecond
	filePatience    = time.Second
)

// complaints gets the errors of writes, as of a full disk.
var complaints = cli.NewOutlet(os.Stderr, consolePatience)

func init() {
	zerolog.ErrorHandler = func(err error) { fmt.Fprintf(complaints, "cannot write the log: %v\n", err) }
}
