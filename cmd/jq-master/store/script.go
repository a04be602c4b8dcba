package store

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// The transitions are Redis scripts. A call of a script is atomic, does nothing without the lease,
// and answers a repeated transition as it did the first time.
var (
	//go:embed lua/held.lua
	heldSource string
	//go:embed lua/take.lua
	takeSource string
	//go:embed lua/hold.lua
	holdSource string
	//go:embed lua/jobs.lua
	jobsSource string
	//go:embed lua/known.lua
	knownSource string
	//go:embed lua/enqueue.lua
	enqueueSource string
	//go:embed lua/undo.lua
	undoSource string
	//go:embed lua/move.lua
	moveSource string
	//go:embed lua/fetch.lua
	fetchSource string
	//go:embed lua/forget.lua
	forgetSource string
	//go:embed lua/aside.lua
	setAsideSource string
	//go:embed lua/put.lua
	putSource string
	//go:embed lua/settle.lua
	settleSource string

	takeScript     = newTransition("take", freeingShebang+takeSource)
	holdScript     = newTransition("hold", freeingShebang+holdSource)
	enqueueScript  = newTransition("enqueue", growingShebang+heldSource+jobsSource+knownSource+enqueueSource).withSharedKeys(1, 3)
	knownScript    = newTransition("known", freeingShebang+heldSource+knownSource+"return seq\n")
	undoScript     = newTransition("undo", freeingShebang+heldSource+undoSource)
	moveScript     = newTransition("move", freeingShebang+heldSource+moveSource).withSharedKeys(3, 0)
	fetchScript    = newTransition("fetch", freeingShebang+heldSource+fetchSource)
	forgetScript   = newTransition("forget", freeingShebang+heldSource+forgetSource)
	setAsideScript = newTransition("aside", freeingShebang+heldSource+setAsideSource)
	putScript      = newTransition("put", freeingShebang+heldSource+putSource)
	putNewScript   = newTransition("put", growingShebang+heldSource+putSource)
	settleScript   = newTransition("settle", growingShebang+heldSource+jobsSource+settleSource)

	scripts []*transition
)

// At maxmemory Redis refuses scripts without the flag allow-oom. The scripts for enqueueing,
// constraints and schedules do not have the flag. All others do, so that jobs can continue, end and
// be forgotten.
const (
	growingShebang = "#!lua\n"
	freeingShebang = "#!lua flags=allow-oom\n"
)

// transition is a script with its name, which its failpoints have, too.
type transition struct {
	*redis.Script
	name, text string
	// If sharedKeys is not 0, one call of the script makes several transitions. They share this
	// many keys and arguments, which come first.
	sharedKeys, sharedArgs int
}

func (t *transition) withSharedKeys(keys, args int) *transition {
	t.sharedKeys, t.sharedArgs = keys, args
	return t
}

func newTransition(name, text string) *transition {
	t := &transition{Script: redis.NewScript(text), name: name, text: text}
	scripts = append(scripts, t)
	return t
}
