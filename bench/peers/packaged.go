package peers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"gloom/bench/load"
)

// packaged is a server that the system has a package for.
type packaged struct {
	program  string
	pkg      string // of Debian and its kin
	protocol load.Protocol
	args     func(port string, set Settings) []string
	version  string // the flag that asks for it
}

// start runs the server on a free port and waits until it takes connections.
func (p packaged) start(ctx context.Context, set Settings) (*Server, error) {
	path, err := p.find()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := p.args(port, set)
	proc, err := spawn(path, args, nil)
	if err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + port
	if err := proc.reach(ctx, addr); err != nil {
		return nil, errors.Join(err, proc.stop())
	}
	return &Server{Version: version(ctx, path, p.version), Command: commandLine(path, args), Protocol: p.protocol,
		SubmitAddr: addr, WorkAddr: addr, PID: proc.pid(), Ended: proc.stop}, nil
}

// find looks in PATH and where daemons live.
func (p packaged) find() (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(dir + p.program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: `make deps` installs it (package %s)", p.program, p.pkg)
}

// version is the first line of what a program says of itself, without the
// address that gearmand adds; "" when it says nothing.
func version(ctx context.Context, path, flag string) string {
	out, err := exec.CommandContext(ctx, path, flag).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	line, _, _ = strings.Cut(line, " - ")
	return line
}
