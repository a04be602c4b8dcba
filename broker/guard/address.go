package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// Address is an address that a daemon listens on.
type Address struct {
	Flag, Value   string // the flag, and the address as written there
	network, addr string // the arguments of net.Listen
	HasTLS        bool   // its connections use TLS
}

// ParseAddresses splits the addresses of an option. With a certificate, "host:port" has TLS,
// unless another address asks for TLS by name ("tls://"); "tcp://host:port" and
// "unix:/path" have none. Where operators or a door's clients connect, "https://" is the same
// as "tls://", and "http://" the same as "tcp://".
func (o *Options) ParseAddresses(flag, values string) ([]Address, error) {
	var addresses []Address
	certificate := o.TLSCert != ""
	byName := strings.Contains(","+values, ",tls://") && flag != "http-addr"
	for value := range strings.SplitSeq(values, ",") {
		a := Address{Flag: flag, Value: value, addr: value, network: "tcp", HasTLS: certificate && !byName}
		if path, ok := strings.CutPrefix(value, "unix:"); ok {
			a.network, a.addr, a.HasTLS = "unix", path, false
		} else if rest, ok := strings.CutPrefix(value, "tls://"); ok {
			a.addr, a.HasTLS = rest, true
		} else if rest, ok := strings.CutPrefix(value, "tcp://"); ok {
			a.addr, a.HasTLS = rest, false
		} else if rest, scheme := CutHTTP(value); scheme != "" && (flag == "http-addr" || flag == "addr") {
			a.addr, a.HasTLS = rest, scheme == "https"
		}
		if err := o.checkAddress(&a); err != nil {
			return nil, err
		}
		addresses = append(addresses, a)
	}
	return addresses, nil
}

// CutHTTP cuts "http://" or "https://", and after one of these a final slash, off an address. The
// scheme is "" if there is none.
func CutHTTP(addr string) (rest, scheme string) {
	scheme, rest, ok := strings.Cut(addr, "://")
	if !ok || scheme != "http" && scheme != "https" {
		return addr, ""
	}
	return strings.TrimSuffix(rest, "/"), scheme
}

// checkAddress returns what is wrong with an address. It also chooses the network: an IPv4 or
// IPv6 literal is bound for that version of IP alone, so 0.0.0.0 does not include [::].
func (o *Options) checkAddress(a *Address) error {
	if a.network == "unix" {
		if a.addr == "" {
			return &OptionError{a.Flag, a.Value, "names no path after unix:"}
		}
		if a.addr[0] == '@' {
			return &OptionError{a.Flag, a.Value, "is an abstract socket, which every user of this host can reach; give a path"}
		}
		return nil
	}
	if a.HasTLS && o.TLSCert == "" {
		return &OptionError{a.Flag, a.Value, "needs --tls-cert and --tls-key"}
	}
	host, port, err := net.SplitHostPort(a.addr)
	if err != nil {
		return &OptionError{a.Flag, fmt.Sprintf("%q", a.Value), "is neither host:port, such as " + exampleAddress(a.addr) + ", nor unix:/path"}
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return &OptionError{a.Flag, fmt.Sprintf("%q", a.Value), "has no port from 0 to 65535"}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		a.network = "tcp6"
		if ip.Is4() {
			a.network = "tcp4"
		}
	}
	if o.Insecure || o.IsGuarded(a.HasTLS) || isLoopback(host) {
		return nil
	}
	return &OptionError{a.Flag, fmt.Sprintf("%q", a.Value), UnguardedReason}
}

// exampleAddress returns an address that is accepted, for a value that is none. A value that is only a
// number was probably meant as a port.
func exampleAddress(value string) string {
	port := value
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		port = "9998"
	}
	return "127.0.0.1:" + port
}

// UnguardedReason is the reason why an unguarded address is refused.
const UnguardedReason = "can be reached from other hosts; set --token-file or --tls-client-ca, or --insecure if anybody who can reach it may do as they like"

// IsGuarded reports whether clients of an address must have a token or a certificate; secure says
// whether the address has TLS.
func (o *Options) IsGuarded(secure bool) bool {
	return o.TokenFile != "" || o.TLSClientCA != "" && secure
}

// IsExposed reports whether other hosts can reach an address without a token or a
// certificate.
func (o *Options) IsExposed(a Address) bool {
	if a.network == "unix" || o.IsGuarded(a.HasTLS) {
		return false
	}
	host, _, err := net.SplitHostPort(a.addr)
	return err == nil && !isLoopback(host)
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Listen binds the address. The caller must add TLS.
func (a *Address) Listen() (net.Listener, error) {
	if a.network == "unix" {
		return ListenUnix(a.addr)
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(context.Background(), a.network, a.addr)
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno // without the address, which the caller names
	}
	return ln, err
}

// ListenUnix listens on a socket that only the same user can reach. It replaces an existing
// socket only if no process listens on it.
func ListenUnix(path string) (net.Listener, error) {
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("the file at this path is not a socket")
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("another process listens on it")
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// On Linux, the file gets the mode that the socket has when it is bound. A umask would do
	// the same, but it would apply to the whole process, and so to files that other goroutines
	// create at the same time.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var mode error
		err := c.Control(func(fd uintptr) { mode = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, mode)
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	u := &unixListener{UnixListener: l.(*net.UnixListener), path: path}
	u.SetUnlinkOnClose(false)
	if u.createdFile, err = os.Lstat(path); err != nil {
		_ = u.UnixListener.Close()
		return nil, err
	}
	return u, nil
}

// unixListener removes its socket when it is closed, but nothing else that is at the path by then,
// such as the socket of a successor.
type unixListener struct {
	*net.UnixListener
	path        string
	createdFile os.FileInfo
	closeOnce   sync.Once
}

// Close implements net.Listener.
func (u *unixListener) Close() error {
	u.closeOnce.Do(func() {
		if current, err := os.Lstat(u.path); err == nil && os.SameFile(current, u.createdFile) {
			_ = os.Remove(u.path)
		}
	})
	return u.UnixListener.Close()
}

// fewConns is a number of connections of which nobody should have fewer without a word.
const fewConns = 64

// DivideFileLimit divides the limit on open files. maxConns is the number of connections that are
// allowed: option, or as many as the limit allows if option is 0. If the limit allows fewer
// connections than option, or fewer than fewConns if option is 0, a warning names the option.
// wantOthers is the number of other files that the caller would like to open. maxOthers is the number
// of other files that the caller may open, at most half of the limit. A reserve for everything else is
// always left.
func DivideFileLimit(name string, option, wantOthers int, log zerolog.Logger) (maxConns, maxOthers int, err error) {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return 0, 0, fmt.Errorf("reading the limit on open files: %w", err)
	}
	files := int(min(r.Cur, 1<<24))
	reserve := min(128, max(24, files/4))
	if files <= reserve {
		return 0, 0, fmt.Errorf("the limit on open files (ulimit -n) is %d, want at least %d", files, reserve+1)
	}
	maxOthers = min(wantOthers, files/2)
	maxConns = max(1, files-reserve-maxOthers)
	if option > maxConns || option == 0 && maxConns < fewConns {
		log.Warn().Int("max_conns", maxConns).Int("open_files", files).
			Msgf("%s is lowered to %d, which the limit on open files (ulimit -n) allows", name, maxConns)
	} else if option > 0 {
		maxConns = option
	}
	return maxConns, maxOthers, nil
}
