package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Command is a process to be started.
type Command struct {
	// Args are the program, looked for in the PATH of Env unless it has a slash,
	// and its arguments.
	Args []string
	Dir  string   // "" is this program's own directory
	Env  []string // NAME=value, the whole environment; the last setting of a name counts. nil is this program's own

	Stdin          []byte     // written to its standard input
	Stdout, Stderr io.Writer  // nil discards the output. After an error of Write nothing more is read: the process writes to a closed pipe
	Files          []*os.File // the process gets them as descriptors 3, 4, and so on

	// Linger limits how long the process's outputs are read after its end while descendants hold them
	// open. Then the whole group is killed. If Linger is 0, only output that was written before the
	// process's end is read, and descendants are left alone.
	Linger time.Duration

	// DeathSignal is the signal that the process gets when this program dies; 0 is SIGKILL. Linux
	// only.
	DeathSignal syscall.Signal

	Guard *Guard // ends the process and its descendants when this program dies; may be nil
	// Name distinguishes this process and its descendants from the Guard's others: Kill finds them
	// by it, even if they have left the process group. No other command has this name.
	Name string

	// WatchGroup adds a small process to the command's process group. It kills that group when
	// this program dies, so that descendants end even if the Guard dies at the same instant. Only
	// the Guard and KillOrphans find descendants that have left the process group.
	WatchGroup bool

	User   *syscall.Credential // nil is this program's own
	Limits []Limit
}

// Limit is a limit that holds for a process and for each of its descendants.
type Limit struct {
	Resource int // unix.RLIMIT_…
	Max      uint64
}

// findProgram searches as execvp does, but with the command's PATH and directory, not ours.
func findProgram(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // the system resolves a relative path from the command's directory
	}
	failure := error(unix.ENOENT)
	for _, place := range filepath.SplitList(lookupEnv(env, "PATH")) {
		path := filepath.Join(place, name)
		seen := path
		if !filepath.IsAbs(path) {
			path = "." + string(filepath.Separator) + path
			seen = filepath.Join(dir, path)
		}
		info, err := os.Stat(seen)
		switch {
		case err != nil || info.IsDir():
		case unix.Access(seen, unix.X_OK) == nil:
			return path, nil
		default:
			failure = unix.EACCES
		}
	}
	return "", failure
}

// lookupEnv returns the value that the last setting of a name has.
func lookupEnv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// dedupEnv keeps the last setting of each name.
func dedupEnv(env []string) []string {
	at := make(map[string]int, len(env))
	var unique []string
	for _, setting := range env {
		name, _, ok := strings.Cut(setting, "=")
		if !ok || strings.Contains(setting, "\x00") {
			continue // execve cannot pass such a setting
		}
		if i, ok := at[name]; ok {
			unique[i] = setting
			continue
		}
		at[name] = len(unique)
		unique = append(unique, setting)
	}
	return unique
}

// startError returns the error of a command that could not start.
func startError(name, dir string, err error) error {
	if dir != "" {
		if info, statErr := os.Stat(dir); statErr != nil {
			return fmt.Errorf("cannot launch '%s': directory '%s': %w", name, dir, unwrap(statErr))
		} else if !info.IsDir() {
			return fmt.Errorf("cannot launch '%s': directory '%s': %w", name, dir, unix.ENOTDIR)
		}
	}
	return fmt.Errorf("cannot launch '%s': %w", name, unwrap(err))
}

// IsTemporary reports whether err is about a state of this host that passes: a full disk, too many
// open files or processes, or a program file that is being written. An operation that fails because
// of such a state may later succeed unchanged.
func IsTemporary(err error) bool {
	for _, state := range []error{unix.ENOSPC, unix.EDQUOT, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.ETXTBSY} {
		if errors.Is(err, state) {
			return true
		}
	}
	return false
}

func unwrap(err error) error {
	if inner, ok := err.(*os.PathError); ok {
		return inner.Err
	}
	return err
}
