package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gloom/bench/load"
	"gloom/bench/proc"
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
	path, err := proc.Program(ctx, "gloomd", set.Gloomd, "--gloomd")
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
