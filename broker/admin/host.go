package admin

import (
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"gloom/broker/admin/api"
)

// ours tells whether a request was sent to this broker by a name or address of
// its own. A web page can make a name of its own mean our address, and would
// then be let by the browser to read what we answer.
func (a *API) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	bound, ok := a.srv.HTTPAddr().(*net.TCPAddr)
	if !ok {
		return true // no browser gets to a unix socket
	}
	opt := a.srv.Options()
	self, _ := os.Hostname()
	names := append(strings.Split(opt.HTTPHosts, ","), "localhost", hostOf(opt.HTTPAddr), self)
	if slices.ContainsFunc(names, func(n string) bool {
		n = strings.TrimSpace(n)
		return n != "" && strings.EqualFold(n, name)
	}) {
		return true
	}
	// Listening on all addresses, any may be ours.
	ip := net.ParseIP(name)
	return ip != nil && (ip.IsLoopback() || ip.Equal(bound.IP) || bound.IP.IsUnspecified())
}

// hostOf is the name or address in an address as it is configured.
func hostOf(addr string) string {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr = rest
	}
	host, _, _ := net.SplitHostPort(addr)
	return host
}

func foreign(host string) *api.Error {
	return fail(http.StatusForbidden, "forbidden_host", "the Host %.200q is not this broker's; use localhost, the address that it listens on, the host's name, or one that --http-hosts lists", host)
}
