package daemon

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"

	"gloom/cmd/internal/cli"
)

// Signals turns the signals of the process into channels and calls.
type Signals struct {
	// Stop ends at the first SIGTERM or SIGINT, Kill at the second.
	Stop, Kill context.Context
	incoming   chan os.Signal
	done       chan struct{}
}

// beforeNotify holds a SIGHUP that arrived before Notify was called.
var beforeNotify = make(chan os.Signal, 1)

// HoldHangup keeps SIGHUP from ending the process, and holds it until Notify is called. Daemons call
// HoldHangup first.
func HoldHangup() { signal.Notify(beforeNotify, syscall.SIGHUP) }

// Notify listens for signals until Close; SIGHUP calls reopen. A reopen that hangs, for example on
// a file of a dead file server, does not delay other signals.
func Notify(reopen func()) *Signals {
	s := &Signals{incoming: make(chan os.Signal, 4), done: make(chan struct{})}
	var stop, kill context.CancelFunc
	s.Stop, stop = context.WithCancel(context.Background())
	s.Kill, kill = context.WithCancel(context.Background())
	// SIGPIPE is caught so that a log without a reader does not end the process. If SIGPIPE were
	// ignored instead, jobs would inherit the ignored signal.
	signal.Notify(s.incoming, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
	select {
	case sig := <-beforeNotify:
		s.incoming <- sig
	default:
	}
	hangup := make(chan struct{}, 1)
	go func() {
		for {
			select {
			case <-hangup:
				reopen()
			case <-s.done:
				return
			}
		}
	}()
	go func() {
		var stopping <-chan time.Time
		defer kill()
		defer stop()
		for {
			select {
			case sig := <-s.incoming:
				switch {
				case sig == syscall.SIGPIPE:
				case sig == syscall.SIGHUP:
					select {
					case hangup <- struct{}{}:
					default: // the next reopen has not begun yet, and will see all changes
					}
				case stopping == nil:
					stopping = time.After(cli.StopWindow)
				case s.Stop.Err() != nil:
					kill()
				}
			case <-stopping:
				stop()
			case <-s.done:
				return
			}
		}
	}()
	return s
}

// Close stops listening.
func (s *Signals) Close() {
	signal.Stop(s.incoming)
	select {
	case <-beforeNotify: // a SIGHUP that s has got, too, is not for the next Notify
	default:
	}
	close(s.done)
}

// NotifyReady tells the service manager, if there is one, that the daemon serves.
func NotifyReady() { _, _ = sd.SdNotify(false, sd.SdNotifyReady) }

// NotifyStopping tells the service manager that the daemon is about to end.
func NotifyStopping() { _, _ = sd.SdNotify(false, sd.SdNotifyStopping) }
