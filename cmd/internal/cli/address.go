package cli

import "net/netip"

// Network is the one to listen on for a host as it is written: 0.0.0.0 does not
// stand for the addresses of IPv6.
func Network(host string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		return "tcp4"
	}
	return "tcp"
}
