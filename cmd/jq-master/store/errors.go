package store

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// kind is what an error of Redis means for the caller.
type kind int

const (
	faulty   kind = iota // the command or the data is wrong: repeating the command is useless
	away                 // Redis does not accept the command now, or its outcome is unknown: repeat it later
	fenced               // another master has the lease
	lost                 // the store was replaced, or has lost data
	conflict             // the job is not in the state that the master expects
	full                 // Redis is at its maxmemory: it accepts only commands that free memory
)

var kindNames = [...]string{"faulty", "away", "fenced", "lost", "conflict", "full"}

// absences lists the prefixes of errors that mean that Redis is away: it cannot serve anybody at the
// moment, or it refuses to serve this client.
var absences = []string{
	"LOADING", "READONLY", "MISCONF", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
	"BUSY", "NOAUTH", "WRONGPASS", "NOPERM",
	"ERR The user executing the script can't", // NOPERM in a script of Redis 7.0
	"ERR ACL failure in script",               // NOPERM in a script of Redis 7.2 and later
	"ERR Protocol error: unauthenticated",
	"NOSCRIPT",                  // the scripts of Redis were flushed
	"ERR max number of clients", // no further client may connect
	"ERR invalid password",      // older spelling of WRONGPASS
}

func kindOf(err error) kind {
	var answer redis.Error
	if !errors.As(err, &answer) || errors.Is(err, redis.Nil) {
		return away // no answer, or errUnexpectedAnswer: the connection broke, or it took too long
	}
	text := answer.Error()
	switch {
	case strings.HasPrefix(text, "FENCED "):
		return fenced
	case strings.HasPrefix(text, "LOST "):
		return lost
	case strings.HasPrefix(text, "CONFLICT "):
		return conflict
	}
	if strings.HasPrefix(text, "OOM ") {
		return full
	}
	for _, prefix := range absences {
		if strings.HasPrefix(text, prefix) {
			return away
		}
	}
	return faulty
}
