package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gloom/broker/guard"
	"gloom/cmd/internal/launch"
	"gloom/cmd/serverlessd/job"

	"golang.org/x/sys/unix"
)

// The sysids of this directory are kept in a file. So a daemon that was killed finds, at its next
// start, the jobs that it had in hand. Each line has a sysid and the place of the directory: in a
// copy of the directory, the sysids may be those of a daemon that runs in the original.

// maxOldSysids bounds the sysids that a start looks for. A daemon that cannot start is started again
// and again, and each sysid takes some milliseconds.
const maxOldSysids = 500

func (e *Engine) sysidFile() string { return filepath.Join(e.cfg.Dir, "sysids") }

// placeOf identifies a directory by its device and inode. It keeps them when it is renamed, and no
// copy has the same.
func placeOf(dir string) (string, error) {
	var info unix.Stat_t
	if err := unix.Stat(dir, &info); err != nil {
		return "", &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return fmt.Sprintf("%d:%d", info.Dev, info.Ino), nil
}

// claimSysids writes the new sysid to the file and returns the last of the earlier sysids. If the disk is full,
// the daemon starts without writing it; if it is then killed, its jobs have to wait for their locks
// to expire.
func (e *Engine) claimSysids() (old []string, err error) {
	if e.place, err = placeOf(e.cfg.Dir); err != nil {
		return nil, err
	}
	text, err := guard.ReadFile(e.sysidFile())
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	others := 0
	for line := range strings.Lines(string(text)) {
		switch f := strings.Fields(line); {
		case len(f) == 1, len(f) == 2 && f[1] == e.place: // earlier versions wrote no place
			old = append(old, f[0])
		case len(f) > 1:
			others++
		}
	}
	if others > 0 {
		e.log.Warn().Int("sysids", others).Msg("sysids that were noted in another directory or device, of which this one may be a copy, are left alone: their jobs wait for their locks to expire")
	}
	e.noteSysid(e.ids.Sysid())
	return old[max(0, len(old)-maxOldSysids):], nil
}

// orphanTimeout bounds the wait for the end of processes that an earlier daemon of this directory left
// behind.
const orphanTimeout = 10 * time.Second

// ownerOf returns the owner under which the guard knows the processes of this directory's daemon
// with that sysid.
func (e *Engine) ownerOf(sysid string) string { return e.nodeName + "-" + sysid }

// endOrphans kills processes that daemons with these sysids left behind: a guard may have been
// killed together with its daemon. It returns the sysids that have no process left: their jobs may
// run again at once. The jobs of the other sysids wait until their locks expire.
func (e *Engine) endOrphans(old []string) []string {
	ctx, cancel := context.WithTimeout(e.ctx, orphanTimeout)
	defer cancel()
	owners := make([]string, len(old))
	for i, sysid := range old {
		owners[i] = e.ownerOf(sysid)
	}
	n, err := launch.KillOrphans(ctx, owners...)
	if n > 0 {
		e.log.Warn().Int("processes", n).Msg("killed processes that earlier daemons in this directory had left")
	}
	if err == nil {
		return old
	}
	return slices.DeleteFunc(old, func(sysid string) bool { // the time is over: each is looked for once more
		_, err := launch.KillOrphans(ctx, e.ownerOf(sysid))
		if err != nil {
			e.log.Error().Err(err).Str("sysid", sysid).Msg("processes of an earlier daemon do not end: its jobs wait for their locks to expire")
		}
		return err != nil
	})
}

func (e *Engine) noteSysid(sysid string) {
	if err := appendLine(e.sysidFile(), sysid+" "+e.place); err != nil {
		e.log.Error().Err(err).Msg("the new sysid could not be noted: after a kill its jobs wait for their locks to expire")
	}
}

// appendLine adds a whole line to a file, or nothing.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err = f.WriteString(line + "\n"); err == nil {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Truncate(info.Size()))
	}
	return nil
}

// newSysid replaces the lost sysid, unless it has already been replaced.
func (e *Engine) newSysid(lostSysid string) {
	e.sysidFileMu.Lock() // e.mu is not held, because adds and slots must not wait for the disk
	defer e.sysidFileMu.Unlock()
	if e.ids.Sysid() != lostSysid {
		return
	}
	sysid := job.NewSysid()
	e.noteSysid(sysid)
	e.ids.SetSysid(sysid)
}
