package store

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// The transitions are Redis scripts. A call of a script is atomic, does nothing without the lease,
// and answers a repeated transition as it did the first time.
var (
	//go:embed lua/held.lua
	held string
	//go:embed lua/take.lua
	takeText string
	//go:embed lua/hold.lua
	holdText string
	//go:embed lua/jobs.lua
	jobs string
	//go:embed lua/enqueue.lua
	enqueueText string
	//go:embed lua/undo.lua
	undoText string
	//go:embed lua/move.lua
	moveText string
	//go:embed lua/fetch.lua
	fetchText string
	//go:embed lua/forget.lua
	forgetText string
	//go:embed lua/aside.lua
	asideText string
	//go:embed lua/put.lua
	putText string
	//go:embed lua/settle.lua
	settleText string

	take    = script("take", frees+takeText)
	hold    = script("hold", frees+holdText)
	enqueue = script("enqueue", grows+held+jobs+enqueueText).joins(1, 3)
	undo    = script("undo", frees+held+undoText)
	move    = script("move", frees+held+moveText).joins(3, 0)
	fetch   = script("fetch", frees+held+fetchText)
	forget  = script("forget", frees+held+forgetText)
	aside   = script("aside", frees+held+asideText)
	put     = script("put", frees+held+putText)
	putMore = script("put", grows+held+putText)
	settle  = script("settle", grows+held+jobs+settleText)

	scripts []*transition
)

// At maxmemory Redis refuses scripts without the flag allow-oom. The scripts for enqueueing,
// constraints and schedules do not have the flag. All others do, so that jobs can continue, end and
// be forgotten.
const (
	grows = "#!lua\n"
	frees = "#!lua flags=allow-oom\n"
)

// transition is a script with its name, which is also the name of its failpoints.
type transition struct {
	*redis.Script
	name, text string
	// If keys is not 0, one call of the script makes several transitions. They share this many keys
	// and arguments, which come first.
	keys, args int
}

func (t *transition) joins(keys, args int) *transition {
	t.keys, t.args = keys, args
	return t
}

func script(name, text string) *transition {
	t := &transition{Script: redis.NewScript(text), name: name, text: text}
	scripts = append(scripts, t)
	return t
}
