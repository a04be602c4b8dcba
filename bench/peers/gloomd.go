package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"gloom/bench/load"
	"gloom/bench/result"
)

// ready is the line by which gloomd and the relay say what they bound.
type ready struct {
	Message    string `json:"message"`
	SubmitAddr string `json:"submit_addr"`
	WorkerAddr string `json:"worker_addr"`
	HTTPAddr   string `json:"http_addr"`
	Version    string `json:"version"`
}

func startGloomd(ctx context.Context, set Settings) (*Server, error) {
	path, err := findGloomd(ctx, set.Gloomd)
	if err != nil {
		return nil, err
	}
	args := append([]string{"--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0",
		"--log-format=json"}, set.Flags...)
	s, err := startAnnounced(ctx, path, args, Gloom{})
	if err != nil {
		return nil, err
	}
	s.Build = result.BuildOf(path)
	return s, nil
}

// startRelay runs the relay in a process of its own, so that its cost can be
// told from the generator's.
func startRelay(ctx context.Context, _ Settings) (*Server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startAnnounced(ctx, self, []string{"relay"}, Relay{})
}

// startAnnounced starts a program that binds free ports and logs them as JSON.
func startAnnounced(ctx context.Context, path string, args []string, p load.Protocol) (*Server, error) {
	found := make(chan ready, 1)
	proc, err := spawn(path, args, func(line []byte) {
		var r ready
		if json.Unmarshal(line, &r) == nil && r.SubmitAddr != "" && r.WorkerAddr != "" {
			select {
			case found <- r:
			default:
			}
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case r := <-found:
		return &Server{Version: r.Version, Command: commandLine(path, args), Protocol: p, SubmitAddr: r.SubmitAddr,
			WorkAddr: r.WorkerAddr, HTTPAddr: r.HTTPAddr, PID: proc.pid(), Ended: proc.stop}, nil
	case <-proc.done:
		err = fmt.Errorf("%s ended at once: %v: %s", path, proc.err, proc.tail)
	case <-time.After(startWithin):
		err = fmt.Errorf("%s did not say where it listens within %v: %s", path, startWithin, proc.tail)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, proc.stop())
}

func commandLine(path string, args []string) string {
	return strings.Join(append([]string{filepath.Base(path)}, args...), " ")
}

// findGloomd takes the one that is named, the one beside this program, the one
// in PATH, or builds it from the source tree we are in.
func findGloomd(ctx context.Context, named string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "gloomd")
		if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() {
			return beside, nil
		}
	}
	if path, err := exec.LookPath("gloomd"); err == nil {
		return path, nil
	}
	return buildGloomd(ctx)
}

// buildGloomd builds into the user's cache: the go command does nothing when
// that is up to date.
func buildGloomd(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	path := filepath.Join(cache, "gloom-bench", "gloomd")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "gloom/cmd/gloomd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("no gloomd beside this program or in PATH, and building it failed (name one with --gloomd): %w: %s",
			err, bytes.TrimSpace(out))
	}
	return path, nil
}
