// Package proxytest puts a proxy in front of a server. A test sees the connections, and changes, delays
// or cuts what passes.
package proxytest

import (
	"net"
	"strings"
	"testing"
)

// Filter returns what to pass on of some bytes of one side of a connection. An error cuts the
// connection.
type Filter func(sent []byte) (passed []byte, err error)

// Open is called for each new connection, before the server is dialled. It returns a filter for each
// direction; nil passes on everything. An error closes the connection.
type Open func(client net.Conn) (toServer, toClient Filter, err error)

// Start starts a proxy on a loopback port. The server's address is host:port or unix:/path. The proxy
// accepts connections until the test ends.
func Start(t testing.TB, server string, open Open) *net.TCPAddr {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	Serve(t, l, server, open)
	return l.Addr().(*net.TCPAddr)
}

// Serve is like Start, with a listener.
func Serve(t testing.TB, l net.Listener, server string, open Open) {
	t.Cleanup(func() { l.Close() })
	network := "tcp"
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		network, server = "unix", path
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				var toServer, toClient Filter
				if open != nil {
					if toServer, toClient, err = open(client); err != nil {
						return
					}
				}
				conn, err := net.Dial(network, server)
				if err != nil {
					return
				}
				go pass(client, conn, toClient)
				pass(conn, client, toServer)
			}()
		}
	}()
}

// pass passes on what one side sends, until an end closes both.
func pass(to, from net.Conn, filter Filter) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		sent := buf[:n]
		if filter != nil && n > 0 {
			var cut error
			if sent, cut = filter(sent); cut != nil {
				return
			}
		}
		if _, failed := to.Write(sent); err != nil || failed != nil {
			return
		}
	}
}
