package fleetprobe

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// site is a network namespace with its own loopback. The namespace has no name, so the kernel
// removes it when this process and the last process in it have ended, even after a crash.
type site struct {
	namespace *os.File
	ip        string
	port      string // the switch's end of its link
	lan       *lan
}

func newSite() (*site, error) {
	type made struct {
		file *os.File
		err  error
	}
	c := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			c <- made{err: fmt.Errorf("this machine makes no network namespaces (it takes root): %w", err)}
			return
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		c <- made{f, err}
	}()
	m := <-c
	return &site{namespace: m.file}, m.err
}

func (s *site) namespacePath() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.namespace.Fd())
}

// command returns a command that runs there.
func (s *site) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"--net=" + s.namespacePath()}, args...)...)
}

// run runs a tool in the namespace, with lines of commands as its input.
func (s *site) run(lines string, tool ...string) error {
	cmd := s.command(tool...)
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s\n%s", strings.Join(tool, " "), err, out, lines)
	}
	return nil
}

func (s *site) ipRoute(format string, args ...any) error {
	return s.run(fmt.Sprintf(format, args...)+"\n", "ip", "-batch", "-")
}

// dial connects from the site's network namespace.
func (s *site) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer home.Close()
	if err := unix.Setns(int(s.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil { // otherwise no other goroutine may use the thread
		runtime.UnlockOSThread()
	}
	return c, err
}

// lan is a network of sites: hub holds the switch that connects them.
type lan struct {
	hub   *site
	sites []*site
}

func newLAN(n int) (*lan, error) {
	hub, err := newSite()
	if err != nil {
		return nil, err
	}
	l := &lan{hub: hub}
	if err := hub.ipRoute("link add sw type bridge\nlink set sw up"); err != nil {
		return nil, err
	}
	for i := range n {
		s, err := newSite()
		if err != nil {
			return nil, err
		}
		s.lan, s.ip, s.port = l, fmt.Sprintf("10.77.0.%d", i+1), fmt.Sprintf("port%d", i)
		l.sites = append(l.sites, s)
		if err := hub.ipRoute("link add %s type veth peer name eth0 netns %s\nlink set %[1]s master sw up", s.port, s.namespacePath()); err != nil {
			return nil, err
		}
		if err := s.ipRoute("addr add %s/24 dev eth0\nlink set lo up\nlink set eth0 up", s.ip); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *lan) close() {
	for _, s := range append(l.sites, l.hub) {
		s.namespace.Close()
	}
}

// cut disconnects the site from the network silently, heal connects it again.
func (s *site) cut() error  { return s.lan.hub.ipRoute("link set %s down", s.port) }
func (s *site) heal() error { return s.lan.hub.ipRoute("link set %s up", s.port) }

// mute drops the packets that the site sends to another site. The packets of that other site still
// arrive.
func (s *site) mute(to *site) error   { return s.ipRoute("route add blackhole %s/32", to.ip) }
func (s *site) unmute(to *site) error { return s.ipRoute("route del blackhole %s/32", to.ip) }

// makeSlow makes the site's link slow. It tries several methods, because not every kernel has all
// methods.
func (s *site) makeSlow() (discipline string, err error) {
	for _, discipline := range []string{"netem delay 20ms 10ms loss 1%", "tbf rate 20mbit burst 16kb latency 200ms"} {
		if err = s.run("", strings.Fields("tc qdisc replace dev eth0 root "+discipline)...); err == nil {
			return discipline, nil
		}
	}
	return "", err
}

func (s *site) makeFast() error { return s.run("", strings.Fields("tc qdisc del dev eth0 root")...) }
