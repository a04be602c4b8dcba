package control

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/jobd/peer"
)

// MasterLink keeps this daemon registered with a master. The master sends its requests over the
// connection that we dial.
type MasterLink struct {
	Host     string
	Port     int
	Name     string // the name under which the master shows us
	Password string
	// MaxPause is the longest pause between two attempts; the first pauses are shorter.
	MaxPause time.Duration
	// PingInterval is the time between two pings to the master; 0 means 30 s.
	PingInterval time.Duration
	Log          zerolog.Logger
}

const (
	firstPause          = 500 * time.Millisecond
	minPause            = 100 * time.Millisecond // a shorter MaxPause counts as this
	dialTimeout         = 10 * time.Second
	registerTimeout     = 30 * time.Second
	flushTimeout        = 2 * time.Second
	defaultPingInterval = 30 * time.Second
	// maxUnansweredPings limits the consecutive pings that the master may leave unanswered. A proxy may keep
	// our connection open after the master is gone.
	maxUnansweredPings = 3
)

// registration is the data of register-worker.
type registration struct {
	Targets []string `json:"targets"`
	Name    string   `json:"name"`
}

// errNoTargets ends a connection when there are no targets to register, because masters refuse an
// empty list.
var errNoTargets = errors.New("no targets are left")

var errSilent = errors.New("the master has stopped answering pings")

// Run keeps the daemon registered until ctx ends; pending answers are then still sent. Whenever the
// engine's targets change it registers again, which replaces the earlier registration.
func (l *MasterLink) Run(ctx context.Context, engine Engine) {
	changed := make(chan struct{}, 1)
	engine.OnTargets(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer engine.OnTargets(nil)

	maxPause := max(l.MaxPause, minPause)
	pause := min(firstPause, maxPause)
	known := func() {}
	for ctx.Err() == nil {
		for len(engine.Targets()) == 0 {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
		registered, err := l.runSession(ctx, engine, changed, known)
		if ctx.Err() != nil {
			return
		}
		if registered {
			pause = min(firstPause, maxPause)
			known = func() { engine.Poll(nil) } // the master may have sent polls while there was no connection
		}
		wait := pause + rand.N(pause/4+1) // random, so that not all workers reconnect at once
		l.Log.Warn().Err(err).Stringer("pause", wait.Round(time.Millisecond)).Msg("no connection to the master")
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		pause = min(2*pause, maxPause)
	}
}

// runSession runs one connection, from dialling to its end. The master's requests are served from the
// start. known is called when the master has accepted our registration, which may be after its
// first requests.
func (l *MasterLink) runSession(ctx context.Context, engine Engine, changed <-chan struct{}, known func()) (registered bool, err error) {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := peer.Dial(dialCtx, l.Host, l.Port, peer.Options{Password: l.Password, Log: l.Log}, Routes(engine))
	if err != nil {
		return false, err
	}
	defer conn.Close()
	select {
	case <-changed: // an earlier change can be ignored: the targets are read below
	default:
	}
	for {
		targets := engine.Targets()
		if len(targets) == 0 {
			return registered, errNoTargets
		}
		callCtx, cancel := context.WithTimeout(ctx, registerTimeout)
		_, err := conn.Call(callCtx, "register-worker", registration{targets, l.Name})
		cancel()
		if err != nil {
			return registered, err
		}
		if !registered {
			known()
		}
		registered = true
		l.Log.Info().Strs("targets", targets).Str("name", l.Name).Msg("registered with the master")
		if err := l.waitOnConn(ctx, conn, changed); err != nil {
			return registered, err
		}
	}
}

// waitOnConn waits on a connection and returns nil when the targets have changed. An error ends the
// connection.
func (l *MasterLink) waitOnConn(ctx context.Context, conn *peer.Conn, changed <-chan struct{}) error {
	ping := time.NewTicker(cmp.Or(l.PingInterval, defaultPingInterval))
	defer ping.Stop()
	lastHeard, missed := conn.LastHeard(), 0
	for {
		select {
		case <-changed:
			return nil
		case <-conn.Done():
			return peer.ErrClosed
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.Background(), flushTimeout)
			defer cancel()
			conn.Flush(last)
			return ctx.Err()
		case <-ping.C:
			if now := conn.LastHeard(); now.After(lastHeard) {
				lastHeard, missed = now, 0
			}
			if missed++; missed > maxUnansweredPings {
				return errSilent
			}
			conn.Ping()
		}
	}
}
