package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"gloom/cmd/serverlessd/job"
)

// The sysids of this directory stand in a file, so that a daemon that was killed
// finds at its next start what it had in hand.

func (e *Engine) sysidFile() string { return filepath.Join(e.cfg.Dir, "sysids") }

// claimSysids notes the new sysid and returns those of before. That it cannot be noted,
// on a full disk, keeps nobody from starting: it costs time after a kill.
func (e *Engine) claimSysids() (old []string, err error) {
	text, err := os.ReadFile(e.sysidFile())
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	old = strings.Fields(string(text))
	e.noteSysid(e.ids.Sysid())
	return old, nil
}

func (e *Engine) noteSysid(sysid string) {
	if err := appendLine(e.sysidFile(), sysid); err != nil {
		e.log.Error().Err(err).Msg("the new sysid could not be noted: after a kill its jobs wait for their locks to expire")
	}
}

// appendLine adds a line to a file, all of it or nothing.
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

// newSysid replaces a sysid, unless that has been done.
func (e *Engine) newSysid(lost string) {
	e.noting.Lock() // not e.mu: adds and slots do not wait for the disk
	defer e.noting.Unlock()
	if e.ids.Sysid() != lost {
		return
	}
	sysid := job.NewSysid()
	e.noteSysid(sysid)
	e.ids.SetSysid(sysid)
}
