package store

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

// The transitions as Redis runs them. Each is one step, does nothing when the
// lease is not ours, and answers a repeat as it did at first.
var (
	//go:embed lua/held.lua
	held string
	//go:embed lua/take.lua
	takeText string
	//go:embed lua/hold.lua
	holdText string
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
	//go:embed lua/put.lua
	putText string

	take    = script("take", takeText)
	hold    = script("hold", holdText)
	enqueue = script("enqueue", held+enqueueText)
	undo    = script("undo", held+undoText)
	move    = script("move", held+moveText)
	fetch   = script("fetch", held+fetchText)
	forget  = script("forget", held+forgetText)
	put     = script("put", held+putText)

	scripts []*transition
)

// transition is a script and the name that a fault point has for it.
type transition struct {
	*redis.Script
	name, text string
}

func script(name, text string) *transition {
	t := &transition{redis.NewScript(text), name, text}
	scripts = append(scripts, t)
	return t
}
