package guard

import (
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// IsOwnHost reports whether the Host of a request names the HTTP address itself. addr is the address
// as configured, bound the one that the system has bound. Without this check, a web page could
// point its own host name at our address, and the browser would let the page read our answers.
func (o *Options) IsOwnHost(host, addr string, bound net.Addr) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	tcpAddr, ok := bound.(*net.TCPAddr)
	if !ok {
		return true // no browser can reach a unix socket
	}
	// A listener that is bound to all addresses can be reached at any IP address.
	if ip := net.ParseIP(name); ip != nil && (ip.IsLoopback() || ip.Equal(tcpAddr.IP) || tcpAddr.IP.IsUnspecified()) {
		return true
	}
	hostname, _ := os.Hostname()
	names := append(strings.Split(o.HTTPHosts, ","), "localhost", hostOf(addr), hostname)
	return slices.ContainsFunc(names, func(n string) bool {
		n = strings.TrimSpace(n)
		return n != "" && strings.EqualFold(n, name)
	})
}

// IsCrossSite reports whether a browser sends a request on behalf of a page of another site. A
// link that the user follows is not such a request, but a frame in the page is.
func IsCrossSite(r *http.Request) bool {
	dest := r.Header.Get("Sec-Fetch-Dest")
	link := r.Header.Get("Sec-Fetch-Mode") == "navigate" && (dest == "document" || dest == "")
	return r.Header.Get("Sec-Fetch-Site") == "cross-site" && !link
}

// AskedPath returns the path of a request as the client sent it, escapes included.
func AskedPath(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path
}

// hostOf returns the host in a configured address.
func hostOf(addr string) string {
	if _, rest, ok := strings.Cut(addr, "://"); ok {
		addr = rest
	}
	host, _, _ := net.SplitHostPort(addr)
	return host
}
