package store

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"gloom/cmd/internal/boot"
)

// The counts of a type are spread over countRows rows, so that daemons of one store rarely wait for
// each other.
const countRows = 16

// Open returns the store at an address, sqlite:PATH or mysql://…. It does not connect to the store:
// while the store cannot be reached, calls return ErrAway. An error of Open means that the address
// is invalid.
func Open(address string) (Store, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	switch {
	case scheme == "sqlite" && rest != "":
		return newSQL(&sqliteDialect{path: rest, clock: time.Now, bootID: boot.ClockID(), sinceBoot: boot.Since}), nil
	case scheme == "mysql":
		u, err := url.Parse(address)
		if err != nil {
			return nil, fmt.Errorf("the address of the mysql store is malformed: %w", err.(*url.Error).Err)
		}
		m, err := newMySQL(u)
		if err != nil {
			return nil, err
		}
		return newSQL(m), nil
	}
	return nil, fmt.Errorf("%.60q is not a store; write sqlite:PATH or mysql://USER:PASSWORD@HOST/DATABASE", scheme+":…")
}

func newSQL(d dialect) *SQL {
	return &SQL{
		dialect: d, slot: rand.IntN(countRows), writeTurns: semaphore.NewWeighted(maxRequests), readTurns: semaphore.NewWeighted(maxRequests),
		heads: typeHeads{byType: make(map[string]typeHead), changed: make(map[string]int64)},
		clock: clock{monotonic: func() time.Duration { return time.Since(processStart) }, sinceBoot: boot.Since},
	}
}
