package cli

import "net/netip"

// ListenNetwork returns the network to listen on for a host: 0.0.0.0 does not include the addresses
// of IPv6.
func ListenNetwork(host string) string {
	if a, err := netip.ParseAddr(host); err == nil && a.Is4() {
		return "tcp4"
	}
	return "tcp"
}
