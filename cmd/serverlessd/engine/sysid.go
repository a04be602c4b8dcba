package engine

import (
	"os"
	"path/filepath"
	"strings"

	"gloom/cmd/serverlessd/job"
)

// The sysids of this directory stand in a file, so that a daemon that was killed
// finds at its next start what it had in hand.

func (e *Engine) sysidFile() string { return filepath.Join(e.cfg.Dir, "sysids") }

// claimSysids notes the new sysid and returns those of before.
func (e *Engine) claimSysids() (old []string, err error) {
	text, err := os.ReadFile(e.sysidFile())
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	old = strings.Fields(string(text))
	return old, e.noteSysid(e.ids.Sysid())
}

func (e *Engine) noteSysid(sysid string) error {
	f, err := os.OpenFile(e.sysidFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err = f.WriteString(sysid + "\n"); err == nil {
		err = f.Sync()
	}
	return err
}

// newSysid replaces a sysid, unless that has been done.
func (e *Engine) newSysid(lost string) {
	e.noting.Lock() // not e.mu: adds and slots do not wait for the disk
	defer e.noting.Unlock()
	if e.ids.Sysid() != lost {
		return
	}
	sysid := job.NewSysid()
	if err := e.noteSysid(sysid); err != nil {
		e.log.Error().Err(err).Msg("the new sysid could not be noted: after a kill its jobs wait for their locks to expire")
	}
	e.ids.SetSysid(sysid)
}
