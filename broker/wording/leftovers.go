package wording

import (
	"fmt"
	"strings"
)

// Leftovers describes what a drain still waits for.
type Leftovers struct {
	Running, Borrowed, Queued, Delayed uint64 // jobs
	Unread                             int    // bytes of frames that submitters have not read
}

// Jobs returns how many jobs have not ended.
func (l Leftovers) Jobs() uint64 { return l.Running + l.Borrowed + l.Queued + l.Delayed }

// String returns a text such as "1 running and 2 queued jobs". Unread bytes are named only if no job
// is left.
func (l Leftovers) String() string {
	if l.Jobs() == 0 {
		if l.Unread > 0 {
			return "results that submitters have not read"
		}
		return "nothing"
	}
	var parts []string
	noun := ""
	for _, p := range []struct {
		n     uint64
		state string
	}{{l.Running, "running"}, {l.Borrowed, "borrowed"}, {l.Queued, "queued"}, {l.Delayed, "delayed"}} {
		switch p.n {
		case 0:
			continue
		case 1:
			noun = " job"
		default:
			noun = " jobs"
		}
		parts = append(parts, fmt.Sprintf("%d %s", p.n, p.state))
	}
	text := parts[len(parts)-1] + noun
	if others := parts[:len(parts)-1]; len(others) > 0 {
		text = strings.Join(others, ", ") + " and " + text
	}
	return text
}
