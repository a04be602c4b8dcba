package main

import (
	"net"
	"strings"
	"syscall"
	"testing"

	"gloom/wire"
)

// TestNoBroker: without an address, the error names the socket and the port that were tried.
func TestNoBroker(t *testing.T) {
	for flag, want := range map[string]string{
		"submit-addr": wire.SubmitPort.Socket() + " or 127.0.0.1:9998: connection refused",
		"worker-addr": wire.WorkerPort.Socket() + " or 127.0.0.1:9999: connection refused",
	} {
		err := noBroker(nil, flag, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
		if want = "no broker reached at " + want; err.Error() != want || !strings.HasPrefix(want, "no broker reached at /") {
			t.Errorf("%s: %q, want %q", flag, err, want)
		}
	}
}
