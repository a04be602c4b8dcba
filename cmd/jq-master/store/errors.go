package store

import (
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// kind says what an error of Redis means for the caller.
type kind int

const (
	kindFaulty   kind = iota // the command or the data is wrong: repeating the command is useless
	kindAway                 // Redis does not accept the command now, or its outcome is unknown: repeat it later
	kindFenced               // another master has the lease
	kindLost                 // the store was replaced, or has lost data
	kindConflict             // the job is not in the state that the master expects
	kindFull                 // Redis is at its maxmemory: it accepts only commands that free memory
)

var kindNames = [...]string{"faulty", "away", "fenced", "lost", "conflict", "full"}

// faultyPrefixes lists how certain errors begin. These errors mean that the data is wrong, or that
// a value of the command is longer than Redis permits (proto-max-bulk-len). A script that fails for
// another reason says so with inScript. Any other code, such as LOADING, READONLY or NOSCRIPT,
// means that Redis is away: it can serve nobody at the moment, or refuses to serve this client. A
// text of a proxy means the same, and it may begin with ERR, too.
var faultyPrefixes = []string{"WRONGTYPE ", "UNREADABLE ", protocolError}

const protocolError = "ERR Protocol error: invalid "

// isProtocolError reports whether Redis could not read a command.
func isProtocolError(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), protocolError)
}

// errUnread means that Redis could not read a call, and closed the connection. The cause may be
// that a transition in the call has a long value.
var errUnread = errors.New("redis could not read a call")

// isReset reports whether the connection was closed, with or without an answer.
func isReset(err error) bool {
	return errors.Is(err, errUnread) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

const inScript = ", on @user_script:" // Redis and Valkey add the script and its line

// accessDeniedPrefixes lists prefixes of errors that look like faults of a script, but mean that
// Redis refuses this client.
var accessDeniedPrefixes = []string{
	"ERR The user executing the script can't", // NOPERM in a script of Redis 7.0
	"ERR ACL failure in script",               // NOPERM in a script of Redis 7.2 and later
}

func kindOf(err error) kind {
	var answer redis.Error
	if !errors.As(err, &answer) || errors.Is(err, redis.Nil) {
		return kindAway // no answer, or errUnexpectedAnswer: the connection broke, or it took too long
	}
	text := answer.Error()
	hasPrefix := func(prefix string) bool { return strings.HasPrefix(text, prefix) }
	switch {
	case hasPrefix("FENCED "):
		return kindFenced
	case hasPrefix("LOST "):
		return kindLost
	case hasPrefix("CONFLICT "):
		return kindConflict
	case hasPrefix("OOM "):
		return kindFull
	case slices.ContainsFunc(faultyPrefixes, hasPrefix), hasPrefix("ERR ") && strings.Contains(text, inScript) && !slices.ContainsFunc(accessDeniedPrefixes, hasPrefix):
		return kindFaulty
	}
	return kindAway
}
