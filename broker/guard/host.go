package guard

import (
	"net"
	"os"
	"slices"
	"strings"
)

// Ours tells whether a request was sent to an HTTP address by a name or address
// of its own: addr as it is configured, bound as it is. A web page can make a name
// of its own mean our address, and would then be let by the browser to read what
// we answer.
func (o *Options) Ours(host, addr string, bound net.Addr) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	on, ok := bound.(*net.TCPAddr)
	if !ok {
		return true // no browser gets to a unix socket
	}
	// Listening on all addresses, any may be ours.
	if ip := net.ParseIP(name); ip != nil && (ip.IsLoopback() || ip.Equal(on.IP) || on.IP.IsUnspecified()) {
		return true
	}
	self, _ := os.Hostname()
	names := append(strings.Split(o.HTTPHosts, ","), "localhost", hostOf(addr), self)
	return slices.ContainsFunc(names, func(n string) bool {
		n = strings.TrimSpace(n)
		return n != "" && strings.EqualFold(n, name)
	})
}

// hostOf is the name or address in an address as it is configured.
func hostOf(addr string) string {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr = rest
	}
	host, _, _ := net.SplitHostPort(addr)
	return host
}
