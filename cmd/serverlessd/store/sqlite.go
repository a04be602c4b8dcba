package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// sqliteDialect is the dialect of SQLite. The store's clock begins at the host's time when a daemon
// opens the file while no other daemon has it open. From then on it runs like the clock that counts
// the time since boot, so setting the host's clock does not change it, and all daemons with the
// file read the same time.
type sqliteDialect struct {
	path  string
	file  os.FileInfo      // describes the file that is open
	wal   sideFile         // holds what is not yet in the file
	shm   sideFile         // holds the locks that all processes with the file share
	clock func() time.Time // the host's clock
	// bootID identifies the clock that sinceBoot reads. If it is "", the store's clock is
	// the host's.
	bootID    string
	sinceBoot func() time.Duration
}

// OpenAt opens a SQLite store for tests. now is the store's clock and, unless it is nil, uptime the
// monotonic clock of the daemon.
func OpenAt(path string, now func() time.Time, uptime func() time.Duration) Store {
	s := newSQL(&sqliteDialect{path: path, clock: now})
	if uptime != nil {
		s.clock.monotonic, s.clock.sinceBoot = uptime, uptime
	}
	return s
}

func (d *sqliteDialect) name() string { return "sqlite:" + d.path }

func (d *sqliteDialect) open() (write, read *sql.DB, err error) {
	const common = "_pragma=busy_timeout(5000)&_pragma=cache_size(-65536)&_pragma=temp_store(memory)&_txlock=immediate"
	// SQLite itself would create a file that everybody can read. Its other files get the mode of
	// this file.
	f, err := os.OpenFile(d.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, nil, err
	}
	d.file, err = f.Stat()
	f.Close()
	if err != nil {
		return nil, nil, err
	}
	wal := fmt.Sprintf("?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(%d)&", d.checkpoint())
	name := "file:" + (&url.URL{Path: d.path}).EscapedPath() + wal + common
	k := &statementDriver{name: name}
	if err := k.keep(); err != nil {
		return nil, nil, err
	}
	write, read = sql.OpenDB(&statementDriver{name: name}), sql.OpenDB(k)
	write.SetMaxOpenConns(1)
	read.SetMaxOpenConns(maxRequests + 2)
	read.SetMaxIdleConns(maxRequests + 2)
	return write, read, nil
}

const (
	pageSize = 4096
	// maxWAL is the size at which the WAL is copied to the file. SQLite's default is 4 MiB; with a
	// larger value, pages that change all the time are copied less often.
	maxWAL = 16 << 20
	// walShare limits the WAL to 1/walShare of its disk. On a full disk it could not be copied,
	// because the file has no room to grow, and then nothing could be written any more.
	walShare = 32
)

// checkpoint returns the number of pages after which the WAL is copied to the file.
func (d *sqliteDialect) checkpoint() int64 {
	var disk unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(d.path), &disk); err != nil {
		return maxWAL / pageSize
	}
	return max(1, min(maxWAL, int64(disk.Blocks)*int64(disk.Bsize)/walShare)/pageSize)
}

func (*sqliteDialect) schema() []string {
	return []string{
		"CREATE TABLE IF NOT EXISTS sq_jobs (id CHAR(24) PRIMARY KEY, type VARCHAR(200) NOT NULL, dt TEXT NOT NULL," +
			" `lock` VARCHAR(24) NOT NULL DEFAULT '', tries INT NOT NULL DEFAULT 0, create_dt TEXT NOT NULL, first_dt TEXT NOT NULL," +
			" done_dt TEXT, code VARCHAR(24), exitcode SMALLINT, data BLOB, fence BIGINT NOT NULL DEFAULT 0) WITHOUT ROWID",
		"CREATE INDEX IF NOT EXISTS lock_dt ON sq_jobs (`lock`, dt)",
		"CREATE INDEX IF NOT EXISTS type_lock_dt ON sq_jobs (type, `lock`, dt)",
		"CREATE TABLE IF NOT EXISTS sq_data (id CHAR(24) PRIMARY KEY, data BLOB NOT NULL)",
		"CREATE TABLE IF NOT EXISTS sq_results (id CHAR(24) PRIMARY KEY, data BLOB NOT NULL, truncated INT NOT NULL, bad_lines INT NOT NULL)",
		"CREATE TABLE IF NOT EXISTS sq_last (id CHAR(24) PRIMARY KEY, tries INT NOT NULL, dt TEXT NOT NULL, took_ms BIGINT NOT NULL," +
			" code VARCHAR(24) NOT NULL, exitcode SMALLINT NOT NULL, data BLOB NOT NULL, stderr BLOB NOT NULL)",
		"CREATE TABLE IF NOT EXISTS sq_runs (id CHAR(24) NOT NULL, n INT NOT NULL, worker VARCHAR(24) NOT NULL, started TEXT, took_ms BIGINT NOT NULL," +
			" outcome VARCHAR(16) NOT NULL, error BLOB NOT NULL, PRIMARY KEY (id, n)) WITHOUT ROWID",
		"CREATE TABLE IF NOT EXISTS sq_handlers (id CHAR(24) PRIMARY KEY, type VARCHAR(200) NOT NULL, dt TEXT NOT NULL, lang VARCHAR(16) NOT NULL, data BLOB NOT NULL)",
		"CREATE INDEX IF NOT EXISTS handlers_type_dt ON sq_handlers (type, dt)",
		"CREATE TABLE IF NOT EXISTS sq_counts (type VARCHAR(200) NOT NULL, slot INT NOT NULL, open INT NOT NULL, running INT NOT NULL, ok INT NOT NULL," +
			" failed INT NOT NULL, abandoned INT NOT NULL, expired INT NOT NULL, deleted INT NOT NULL, PRIMARY KEY (type, slot)) WITHOUT ROWID",
		"CREATE INDEX IF NOT EXISTS counts_open ON sq_counts (open, type)",
		"CREATE TABLE IF NOT EXISTS sq_schedules (client VARCHAR(64) NOT NULL, name VARCHAR(128) NOT NULL, wake TEXT NOT NULL, seen TEXT NOT NULL," +
			" waits VARCHAR(24) NOT NULL, from_file INT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (client, name))",
		"CREATE INDEX IF NOT EXISTS schedules_wake ON sq_schedules (wake)",
		"CREATE INDEX IF NOT EXISTS schedules_seen ON sq_schedules (seen)",
		"CREATE INDEX IF NOT EXISTS schedules_waits ON sq_schedules (waits)",
		"CREATE TABLE IF NOT EXISTS sq_keys (id CHAR(24) PRIMARY KEY, type VARCHAR(200) NOT NULL, name BLOB NOT NULL, holds INT, during INT NOT NULL, until TEXT) WITHOUT ROWID",
		"CREATE UNIQUE INDEX IF NOT EXISTS keys_type_name ON sq_keys (type, name, holds)",
		"CREATE INDEX IF NOT EXISTS keys_until ON sq_keys (until)",
		"CREATE TABLE IF NOT EXISTS sq_points (segment VARCHAR(64) PRIMARY KEY, place BIGINT NOT NULL, dt TEXT NOT NULL) WITHOUT ROWID",
		"CREATE TABLE IF NOT EXISTS sq_meta (name VARCHAR(64) PRIMARY KEY, value BIGINT NOT NULL) WITHOUT ROWID",
		// zero is the store's time, in nanoseconds since 1970, when the clock named boot was 0.
		"CREATE TABLE IF NOT EXISTS sq_clock (boot VARCHAR(128) PRIMARY KEY, zero BIGINT NOT NULL) WITHOUT ROWID",
	}
}

func (d *sqliteDialect) scheduleTime(time.Time) time.Time { return d.clock().UTC() }

// errReplaced is the error once the database file has no name. SQLite's writes to the nameless file
// are lost when the last connection closes, and later connections use another file.
var errReplaced = errors.New("its file was removed or replaced; put it back, or restart serverlessd")

// errNoWAL is the error once the WAL has no name: what SQLite writes to it is lost in the same way,
// unless the connections are closed in order. Then SQLite copies the data from the WAL to the
// database file.
var errNoWAL = errors.New("its write-ahead log (the -wal file beside it) was removed or replaced; put that file back, or stop serverlessd with SIGTERM and start it again: if it is killed, jobs are lost")

// errNoSHM is the error once the file with the locks has no name: processes with different such
// files do not see each other's locks, and destroy the database.
var errNoSHM = errors.New("its shared-memory file (the -shm file beside it) was removed or replaced; put that file back, or stop all processes that use the store and start them again")

func (d *sqliteDialect) now(ctx context.Context, q querier) (time.Time, error) {
	for _, f := range []struct {
		sideFile
		err error
	}{{sideFile{d.path, d.file}, errReplaced}, {d.wal, errNoWAL}, {d.shm, errNoSHM}} {
		if f.isReplaced() {
			return time.Time{}, f.err
		}
	}
	if d.bootID == "" {
		return d.scheduleTime(time.Time{}), nil
	}
	zero := d.clockZero().UnixNano()
	err := queryOne(ctx, q, "SELECT zero FROM sq_clock WHERE boot = ?", []any{d.bootID}, &zero)
	return time.Unix(0, zero).Add(d.sinceBoot()).UTC(), err
}

// sideFile is a file that SQLite keeps beside the database as long as a connection is open.
type sideFile struct {
	path string
	info os.FileInfo // nil if there is none, because the file system has no WAL
}

// openSideFile returns the file with this suffix that SQLite has open. SQLite follows links.
func (d *sqliteDialect) openSideFile(suffix string) (b sideFile) {
	if path, err := filepath.EvalSymlinks(d.path); err == nil {
		b.path = path + suffix
		b.info, _ = os.Stat(b.path)
	}
	return b
}

// isReplaced reports whether the file has been removed or replaced since it was opened. A new
// connection creates a missing file, but connections that have the old file continue to use it.
func (b sideFile) isReplaced() bool {
	if b.info == nil {
		return false
	}
	info, err := os.Stat(b.path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, b.info)
}

// begin starts the store's clock at the host's time, unless the clock has that time or a living
// daemon uses it. It writes only if it must, because the disk may be full.
func (d *sqliteDialect) begin(ctx context.Context, write *sql.DB) error {
	if d.wal.info == nil {
		d.wal, d.shm = d.openSideFile("-wal"), d.openSideFile("-shm")
	}
	if d.bootID == "" {
		return nil
	}
	t, err := write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer t.Rollback()
	now, err := d.now(ctx, t)
	if err != nil {
		return err
	}
	known := false
	err = queryOne(ctx, t, "SELECT 1 FROM sq_clock WHERE boot = ? AND (ABS(zero - ?) < ? OR EXISTS (SELECT 1 FROM sq_jobs WHERE type = ? AND dt > ?))",
		[]any{d.bootID, d.clockZero().UnixNano(), int64(maxJitter), sysidType, formatTime(now)}, &known)
	if err != nil || known {
		return err
	}
	id, _, _ := strings.Cut(d.bootID, " ")
	if _, err := t.ExecContext(ctx, "DELETE FROM sq_clock WHERE boot = ? OR boot NOT LIKE ?", d.bootID, id+" %"); err != nil {
		return err
	}
	if _, err := t.ExecContext(ctx, "INSERT INTO sq_clock (boot, zero) VALUES (?, ?)", d.bootID, d.clockZero().UnixNano()); err != nil {
		return err
	}
	if set := d.clock().Sub(now); set.Abs() > maxJitter { // the clock's time before; see clock.behind
		var behindMS int64
		if err := queryOne(ctx, t, "SELECT value FROM sq_meta WHERE name = 'behind'", nil, &behindMS); err != nil {
			return err
		}
		if _, err := t.ExecContext(ctx, "INSERT INTO sq_meta (name, value) VALUES ('behind', ?), ('behind_until', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
			max(0, behindMS+set.Milliseconds()), d.clock().UnixMilli()); err != nil {
			return err
		}
	}
	return t.Commit()
}

// clockZero returns the time on the host's clock at which sinceBoot would have returned 0.
func (d *sqliteDialect) clockZero() time.Time { return d.clock().Add(-d.sinceBoot()) }

func (*sqliteDialect) skipLocked() string { return "" } // SQLite has only one writer at a time
func (*sqliteDialect) forUpdate() string  { return "" }

// limitClause contains an expression, because the plan of LIMIT ? depends on the number: SQLite
// would compile the statement again whenever the number changes.
func (*sqliteDialect) limitClause() string { return " LIMIT ?+0" }

func (*sqliteDialect) idIndexHint() string { return "" } // see condition

func (*sqliteDialect) onConflict(key string) (clause, newValue string) {
	return " ON CONFLICT (" + key + ") DO UPDATE SET ", "excluded.%s"
}

func (*sqliteDialect) kind(err error) kind {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return kindTemporary
	}
	switch e.Code() {
	case lib.SQLITE_CONSTRAINT_PRIMARYKEY, lib.SQLITE_CONSTRAINT_UNIQUE:
		return kindDuplicate
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return kindConflict
	case lib.SQLITE_TOOBIG:
		return kindTooLarge
	case lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB:
		return kindDamaged
	}
	return kindTemporary
}

// insertRows returns a power of two, so that the number of different texts stays small.
func (*sqliteDialect) insertRows(rows int) int { return 1 << (bits.Len(uint(rows)) - 1) }

func (*sqliteDialect) exec(ctx context.Context, t *tx, list []statement) error {
	for _, s := range list {
		if _, err := t.ExecContext(ctx, s.text, s.args...); err != nil {
			return err
		}
	}
	return nil
}
