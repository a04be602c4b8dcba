package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Placeholder is replaced, wherever it stands in the command, by the job's id.
const Placeholder = "{id}"

// words is the command line for one job: placeholders filled in, split on runs
// of spaces. There is no shell, so quotes and everything else are literal.
func words(command string, id int64) []string {
	filled := strings.ReplaceAll(command, Placeholder, strconv.FormatInt(id, 10))
	return strings.FieldsFunc(filled, func(r rune) bool { return r == ' ' })
}

// find is execvp's search with the job's PATH and directory, not the daemon's.
func find(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil // the system resolves it from the job's directory
	}
	failure := error(unix.ENOENT)
	for _, place := range filepath.SplitList(variable(env, "PATH")) {
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

// variable is the value that the last setting of a name gives it.
func variable(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(env[i], name+"="); ok {
			return value
		}
	}
	return ""
}

// environment is the daemon's own with additions; the last setting of a name
// wins, and stands once.
func environment(inherited, added []string) []string {
	at := make(map[string]int, len(inherited)+len(added))
	var env []string
	for _, list := range [][]string{inherited, added} {
		for _, setting := range list {
			name, _, ok := strings.Cut(setting, "=")
			if !ok || strings.Contains(setting, "\x00") {
				continue // execve knows no such setting
			}
			if i, ok := at[name]; ok {
				env[i] = setting
				continue
			}
			at[name] = len(env)
			env = append(env, setting)
		}
	}
	return env
}

// reason tells what kept a command from starting.
func reason(name, dir string, err error) error {
	if dir != "" {
		if info, statErr := os.Stat(dir); statErr != nil {
			return fmt.Errorf("cannot launch '%s': directory '%s': %w", name, dir, unwrap(statErr))
		} else if !info.IsDir() {
			return fmt.Errorf("cannot launch '%s': directory '%s': %w", name, dir, unix.ENOTDIR)
		}
	}
	return fmt.Errorf("cannot launch '%s': %w", name, unwrap(err))
}

func unwrap(err error) error {
	if inner, ok := err.(*os.PathError); ok {
		return inner.Err
	}
	return err
}
