package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"
)

// address is where the broker listens.
type address struct {
	flag, value   string // as it was written
	network, addr string // as package net takes it
	secure        bool   // with TLS
}

// addresses takes the addresses of an option apart. With a certificate
// "host:port" has TLS, unless TLS is asked for by name ("tls://") for another of
// them; "tcp://host:port" and "unix:/path" have none.
func (o *Options) addresses(flag, values string) ([]address, error) {
	var all []address
	certificate := o.TLSCert != ""
	byName := strings.Contains(","+values, ",tls://") && flag != "http-addr"
	for value := range strings.SplitSeq(values, ",") {
		a := address{flag: flag, value: value, addr: value, network: "tcp", secure: certificate && !byName}
		if path, ok := strings.CutPrefix(value, "unix:"); ok {
			a.network, a.addr, a.secure = "unix", path, false
		} else if rest, ok := strings.CutPrefix(value, "tls://"); ok {
			a.addr, a.secure = rest, true
		} else if rest, ok := strings.CutPrefix(value, "tcp://"); ok {
			a.addr, a.secure = rest, false
		}
		if err := o.checkAddress(&a); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// everyAddress is all addresses of all options.
func (o *Options) everyAddress() (all []address, err error) {
	for _, l := range []struct{ flag, values string }{
		{"submit-addr", o.SubmitAddr}, {"worker-addr", o.WorkerAddr}, {"http-addr", o.HTTPAddr},
	} {
		if l.flag == "http-addr" && l.values == "" {
			continue
		}
		a, err := o.addresses(l.flag, l.values)
		if err != nil {
			return nil, err
		}
		all = append(all, a...)
	}
	return all, nil
}

// checkAddress also finds the network of a host: one that is written as an
// address is bound as that alone, 0.0.0.0 not as [::] too.
func (o *Options) checkAddress(a *address) error {
	if a.network == "unix" {
		if a.addr == "" {
			return &OptionError{a.flag, a.value, "names no path behind unix:"}
		}
		if a.addr[0] == '@' {
			return &OptionError{a.flag, a.value, "is an abstract socket, which every user of this host reaches; give a path"}
		}
		return nil
	}
	if a.secure && o.TLSCert == "" {
		return &OptionError{a.flag, a.value, "needs --tls-cert and --tls-key"}
	}
	host, port, err := net.SplitHostPort(a.addr)
	if err != nil {
		return &OptionError{a.flag, fmt.Sprintf("%q", a.value), "is neither host:port nor unix:/path"}
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "" {
		return &OptionError{a.flag, fmt.Sprintf("%q", a.value), "has no port from 0 to 65535"}
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if a.network = "tcp6"; ip.Is4() {
			a.network = "tcp4"
		}
	}
	if o.Insecure || o.guarded(a.secure) || loopback(host) {
		return nil
	}
	return &OptionError{a.flag, fmt.Sprintf("%q", a.value), reachable}
}

const reachable = "can be reached from other hosts; give --token-file or --tls-client-ca, or --insecure if whoever reaches it may do as they like"

// guarded tells whether who reaches an address has to show a token or a
// certificate.
func (o *Options) guarded(secure bool) bool {
	return o.TokenFile != "" || o.TLSClientCA != "" && secure
}

// Exposed tells whether other hosts reach an address without having to show a
// token or a certificate.
func (o *Options) Exposed() bool {
	all, _ := o.everyAddress()
	for _, a := range all {
		if a.network != "unix" && !o.guarded(a.secure) {
			if host, _, err := net.SplitHostPort(a.addr); err == nil && !loopback(host) {
				return true
			}
		}
	}
	return false
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (a *address) listen() (net.Listener, error) {
	if a.network == "unix" {
		return listenUnix(a.addr)
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return lc.Listen(context.Background(), a.network, a.addr)
}

// listenUnix listens on a socket that only the same user can reach. It replaces
// nothing but a socket that nobody listens on.
func listenUnix(path string) (net.Listener, error) {
	if fi, err := os.Lstat(path); err == nil {
		if fi.Mode()&os.ModeSocket == 0 {
			return nil, fmt.Errorf("something that is no socket stands there")
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
			return nil, fmt.Errorf("somebody listens there")
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}
