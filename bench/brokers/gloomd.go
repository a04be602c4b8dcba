package brokers

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gloom/bench/load"
	"gloom/bench/proc"
	"gloom/bench/result"
	"gloom/bench/throwaway"
)

// readyLine is the log line with the addresses of gloomd or the relay.
type readyLine struct {
	SubmitAddr string `json:"submit_addr"`
	WorkerAddr string `json:"worker_addr"`
	HTTPAddr   string `json:"http_addr"`
	Version    string `json:"version"`
}

func startGloomd(ctx context.Context, set Settings) (*Server, error) {
	path, err := proc.FindProgram(ctx, "gloomd", set.Gloomd, "--gloomd")
	if err != nil {
		return nil, err
	}
	s, err := startAndReadAddrs(ctx, set, path, append([]string{"--http-addr=127.0.0.1:0", "--log-format=json"}, set.Flags...), Gloom)
	if err != nil {
		return nil, err
	}
	s.Build = result.BuildOf(path)
	return s, nil
}

// startRelay runs the relay in a process of its own, so that its cost can be separated
// from the generator's.
func startRelay(args ...string) func(ctx context.Context, set Settings) (*Server, error) {
	return func(ctx context.Context, set Settings) (*Server, error) {
		exe, err := os.Executable()
		if err != nil {
			return nil, err
		}
		return startAndReadAddrs(ctx, set, exe, append([]string{"relay"}, args...), Relay)
	}
}

// stopTimeout limits the time that gloomd or the relay takes to end.
const stopTimeout = 5 * time.Second

// startAndReadAddrs starts a program that listens on free ports, or on unix sockets,
// and logs its addresses as JSON.
func startAndReadAddrs(ctx context.Context, set Settings, path string, args []string, p load.Protocol) (*Server, error) {
	dir, err := os.MkdirTemp("", "gloom-bench-")
	if err != nil {
		return nil, err
	}
	submit, work := "127.0.0.1:0", "127.0.0.1:0"
	if set.Unix {
		submit, work = "unix:"+filepath.Join(dir, "submit"), "unix:"+filepath.Join(dir, "work")
	}
	args = append(args, "--submit-addr="+submit, "--worker-addr="+work)
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	d, err := throwaway.Start(cmd, `"submit_addr"`)
	stop := func() error {
		d.Signal(syscall.SIGTERM)
		select {
		case <-d.Exited():
		case <-time.After(stopTimeout):
			d.Kill()
		}
		return os.RemoveAll(dir)
	}
	var r readyLine
	if err == nil {
		err = errors.Join(json.Unmarshal([]byte(d.Ready), &r), ctx.Err())
	}
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	if !set.Unix {
		submit, work = r.SubmitAddr, r.WorkerAddr
	}
	return &Server{Version: r.Version, Command: commandLine(path, args), Protocol: p, SubmitAddr: submit, WorkerAddr: work,
		HTTPAddr: r.HTTPAddr, PID: d.PID(), Shutdown: stop}, nil
}

func commandLine(path string, args []string) string {
	return strings.Join(append([]string{filepath.Base(path)}, args...), " ")
}
