// Package mariadbtest starts throw-away MariaDB servers for tests and benchmarks, each with its own
// data directory, socket and loopback port. They end with the process that started them. It does
// not know jobd's table.
package mariadbtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"gloom/bench/throwaway"
)

// Options chooses what Start runs.
type Options struct {
	// Durable leaves the server's commit durability at its default, one flush per commit. Without
	// it the server does not flush at each commit, which makes tests fast.
	Durable bool
	// Args has further arguments for mariadbd; they override the arguments of this package.
	Args []string
}

// Server is one MariaDB server. It may be stopped or killed and launched again; socket, port and
// data stay the same.
type Server struct {
	*throwaway.Server
	opt Options
}

// installNames are the names of the program that makes a data directory.
var installNames = []string{"mariadb-install-db", "mysql_install_db"}

// Start makes a data directory and starts a server on it. Close ends it.
func Start(opt Options) (*Server, error) {
	program, install := throwaway.Lookup("mariadbd", "mysqld"), throwaway.Lookup(installNames...)
	if program == "" || install == "" {
		return nil, errors.New("no MariaDB server found: apt-get install mariadb-server")
	}
	base, err := throwaway.New(program)
	if err != nil {
		return nil, err
	}
	s := &Server{Server: base, opt: opt}
	s.Args, s.Ready = s.args, s.ready
	if err := s.create(install); err != nil {
		s.Close()
		return nil, err
	}
	return s, s.Start()
}

// Socket returns the path of the unix socket.
func (s *Server) Socket() string { return filepath.Join(s.Dir, "sock") }

// Config returns the settings with which root, who has no password, connects to a database over
// TCP. An empty name selects none.
func (s *Server) Config(database string) *mysql.Config {
	c := mysql.NewConfig()
	c.User = "root"
	c.Net = "tcp"
	c.Addr = s.Addr()
	c.DBName = database
	c.Timeout = 5 * time.Second
	c.MultiStatements = true
	c.Logger = silent{} // tests kill the server, so its errors are expected
	return c
}

type silent struct{}

func (silent) Print(...any) {}

// Open returns a pool on a database. The caller closes it.
func (s *Server) Open(database string) (*sql.DB, error) {
	connector, err := mysql.NewConnector(s.Config(database))
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// create makes the data directory, as a copy of one that the same programs made before.
func (s *Server) create(install string) error {
	empty, err := s.emptyData(install)
	if err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", empty, filepath.Join(s.Dir, "data")).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, throwaway.Tail(out))
	}
	return nil
}

// cacheName is the directory of the cache in which data directories are made. A finished directory
// never changes, so nobody waits for another process to copy it.
const cacheName = "mariadb"

// emptyData returns a data directory without databases of users, and makes it if there is none.
func (s *Server) emptyData(install string) (dir string, err error) {
	program, err := os.Stat(install)
	if err != nil {
		return "", err
	}
	cache, err := throwaway.CacheDir(cacheName)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, fmt.Sprintf("%d-%d", program.ModTime().UnixNano(), os.Getuid()))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	return dir, throwaway.WithCacheDir(cacheName, func(string) error {
		if _, err := os.Stat(dir); err == nil { // another process made it meanwhile
			return nil
		}
		return s.install(install, dir)
	})
}

func (s *Server) install(program, dir string) error {
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	// The directory is not the host's directory for temporary files: any other server that starts
	// there would remove this one's temporary tables.
	args := []string{"--no-defaults", "--datadir=" + part, "--tmpdir=" + s.Dir, "--skip-test-db",
		"--auth-root-authentication-method=normal", "--innodb-log-file-size=16M"}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, throwaway.Tail(out))
	}
	return os.Rename(part, dir)
}

func (s *Server) args() []string {
	args := []string{"--no-defaults",
		"--datadir=" + filepath.Join(s.Dir, "data"),
		"--socket=" + s.Socket(),
		"--port=" + strconv.Itoa(s.Port()),
		"--bind-address=127.0.0.1",
		"--pid-file=" + filepath.Join(s.Dir, "pid"),
		"--tmpdir=" + s.Dir,
		"--skip-name-resolve",
		"--innodb-log-file-size=64M",
	}
	if !s.opt.Durable {
		args = append(args, "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0",
			"--innodb-doublewrite=0", "--innodb-fast-shutdown=2", "--innodb-log-file-size=16M")
	}
	if os.Getuid() == 0 {
		args = append(args, "--user=root")
	}
	return append(args, s.opt.Args...)
}

func (s *Server) ready(ctx context.Context) error {
	db, err := s.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	return db.PingContext(ctx)
}

// SetArgs replaces the further arguments for the next Launch.
func (s *Server) SetArgs(args ...string) { s.opt.Args = args }
