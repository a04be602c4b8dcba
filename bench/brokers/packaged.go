package brokers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"gloom/bench/load"
	"gloom/bench/throwaway"
)

// ErrNoUnix says that a server cannot be measured over unix sockets.
const ErrNoUnix = Unsupported("it is measured only over TCP")

// debianServer is a server that is installed from a Debian package.
type debianServer struct {
	program     string
	pkg         string // name of the package in Debian and its relatives
	protocol    load.Protocol
	args        func(port string, set Settings) []string
	versionFlag string // the flag that prints the version
}

// start runs the server on a free port and waits until it accepts connections.
func (p debianServer) start(ctx context.Context, set Settings) (*Server, error) {
	if set.Unix {
		return nil, ErrNoUnix
	}
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	s, err := throwaway.New(path)
	if err != nil {
		return nil, err
	}
	args := p.args(strconv.Itoa(s.Port()), set)
	s.Args = func() []string { return args }
	s.Ready = func(ready context.Context) error {
		if ctx.Err() != nil {
			return nil // the start was cancelled, so stop waiting
		}
		return s.Accepts(ready)
	}
	if err := errors.Join(s.Launch(), ctx.Err()); err != nil {
		s.Close()
		return nil, err
	}
	return &Server{Version: version(ctx, path, p.versionFlag), Command: commandLine(path, args), Protocol: p.protocol,
		SubmitAddr: s.Addr(), WorkerAddr: s.Addr(), PID: s.PID(), Shutdown: func() error { s.Close(); return nil }}, nil
}

func (p debianServer) find() (string, error) {
	path := throwaway.Lookup(p.program)
	if path == "" {
		return "", fmt.Errorf("%s is not installed: `make deps` installs it (package %s)", p.program, p.pkg)
	}
	return path, nil
}

// version returns the first line that a program prints for its version flag, without the address
// that gearmand adds; "" when the command fails.
func version(ctx context.Context, path, flag string) string {
	out, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	line, _, _ = strings.Cut(line, " - ")
	return line
}
