package bridge

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"gloom/broker/server"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/config"

	"github.com/rs/zerolog"
)

// link is how the bridge reaches its broker: one of its own or a shared one.
type link struct {
	own    *server.Server // nil when it is shared
	dir    string         // of the own broker's sockets
	lock   *os.File
	submit string // address
	work   string
	common []gloom.Option // of submitter and workers

	mu   sync.Mutex // guards the following
	lost map[string]error
	news func(side string, n gloom.Notice)
}

const (
	brokerBackoff   = 50 * time.Millisecond
	brokerPatience  = 3 * time.Second
	brokerHeartbeat = 10 * time.Second

	staleAge = time.Minute // of the sockets of killed daemons, before they are removed
)

func openLink(c config.Broker, log zerolog.Logger) (*link, error) {
	l := &link{submit: c.SubmitAddr, work: c.WorkerAddr, lost: make(map[string]error)}
	l.common = []gloom.Option{gloom.Backoff(brokerBackoff, brokerPatience), gloom.TrustBodies()}
	if c.SubmitAddr == "" && c.WorkerAddr == "" {
		return l, l.embed(log)
	}
	if c.SubmitAddr == "" {
		return nil, errors.New("'broker_submit_addr' is not defined, 'broker_worker_addr' is")
	}
	l.common = append(l.common, gloom.ClientName("jobd"), gloom.Heartbeat(brokerHeartbeat))
	if c.Token != "" {
		l.common = append(l.common, gloom.Token(c.Token))
	}
	if c.TLSCA+c.TLSCert+c.TLSServerName != "" {
		conf, err := cli.ClientTLS("broker_tls_", c.TLSCA, c.TLSCert, c.TLSKey, c.TLSServerName)
		if err != nil {
			return nil, err
		}
		l.common = append(l.common, gloom.TLS(conf))
	}
	return l, nil
}

// embed starts a broker on sockets that only this user reaches.
func (l *link) embed(log zerolog.Logger) error {
	removeStale(os.TempDir())
	dir, err := os.MkdirTemp("", "jobd-")
	if err != nil {
		return err
	}
	l.dir = dir
	// Whoever can lock this file knows that the daemon is gone.
	if l.lock, err = lockFile(filepath.Join(dir, "lock")); err != nil {
		l.close()
		return err
	}
	opt := server.DefaultOptions()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "unix:"+filepath.Join(dir, "submit"), "unix:"+filepath.Join(dir, "work"), ""
	opt.DeadLetters = 0 // the table remembers what failed
	opt.MaxFrame = 64 << 20
	if l.own, err = server.Start(opt, log.Level(zerolog.WarnLevel).With().Str("part", "broker").Logger()); err != nil {
		l.close()
		return fmt.Errorf("start the broker: %w", err)
	}
	l.common = append(l.common, gloom.MaxFrame(opt.MaxFrame))
	l.submit, l.work = opt.SubmitAddr, opt.WorkerAddr
	return nil
}

func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// removeStale removes what killed daemons have left.
func removeStale(parent string) {
	locks, _ := filepath.Glob(filepath.Join(parent, "jobd-*", "lock"))
	for _, path := range locks {
		// A young directory's daemon may not have got to its lock yet.
		if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) < staleAge {
			continue
		}
		lock, err := lockFile(path)
		if err != nil {
			continue // its daemon lives, or it is somebody else's
		}
		os.RemoveAll(filepath.Dir(path))
		lock.Close()
	}
}

func (l *link) close() {
	if l.own != nil {
		l.own.Close()
	}
	if l.dir != "" {
		os.RemoveAll(l.dir)
	}
	if l.lock != nil {
		l.lock.Close()
	}
}

// options are those of one side, "submitter" or a worker's type.
func (l *link) options(side, addr string) []gloom.Option {
	var addrs []string
	for a := range strings.SplitSeq(addr, ",") {
		addrs = append(addrs, strings.TrimSpace(a))
	}
	return append([]gloom.Option{gloom.Addrs(addrs...), gloom.Notify(func(n gloom.Notice) { l.notice(side, n) })}, l.common...)
}

func (l *link) notice(side string, n gloom.Notice) {
	l.mu.Lock()
	switch n.Event {
	case gloom.EventConnected, gloom.EventJoined:
		delete(l.lost, side)
	case gloom.EventLost, gloom.EventFailed, gloom.EventGivenUp:
		l.lost[side] = n.Err
	}
	news := l.news
	l.mu.Unlock()
	if news != nil {
		news(side, n)
	}
}

// forget drops a side that is no more.
func (l *link) forget(side string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.lost, side)
}

// health is nil when all sides are connected.
func (l *link) health() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for side, err := range l.lost {
		return fmt.Errorf("broker is away (%s): %w", side, err)
	}
	return nil
}

// WorkerAddr is where workers reach the broker: of one that the bridge brought
// along, only from this process's user and host.
func (b *Bridge) WorkerAddr() string { return b.link.work }
