package main

import "testing"

// TestOperatorAddress: the zone of an IPv6 address is not escaped in an address, and escaped in a URL.
func TestOperatorAddress(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		":9997":                     "http://127.0.0.1:9997",
		"[::1]:9997":                "http://[::1]:9997",
		"[fe80::1%eth0]:9997":       "http://[fe80::1%25eth0]:9997",
		"[fe80::1%25]:9997":         "http://[fe80::1%2525]:9997",
		"http://[fe80::1%25lo]:80/": "http://[fe80::1%25lo]:80",
		"http://[fe80::1%lo]:80":    "",
		"http://a/b:80":             "",
		"a@b:80":                    "",
	} {
		o := (&connection{httpAddr: given}).operator()
		if got := o.baseURL; o.err == nil && got != want || (o.err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", given, got, o.err, want)
		}
	}
}
