package guard

import "testing"

// TestHostOfStripsScheme: hostOf returns the host of an address with or without a scheme, and "" if the address
// has none.
func TestHostOfStripsScheme(t *testing.T) {
	for addr, want := range map[string]string{
		"gloom.example:9997":       "gloom.example",
		"tls://gloom.example:9997": "gloom.example",
		"tcp://[::1]:9997":         "::1",
		":9997":                    "",
	} {
		if got := hostOf(addr); got != want {
			t.Errorf("the host of %s is %q, want %q", addr, got, want)
		}
	}
}
