// Package natstest runs throw-away NATS servers, alone or as a cluster.
package natstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"gloom/bench/throwaway"
)

// Server is one NATS server on the loopback interface.
type Server struct {
	*throwaway.Server
	// URL is the address for clients.
	URL string
}

// Cluster starts n servers that form a cluster, with further arguments. Debian's package
// nats-server must be installed.
func Cluster(n int, further ...string) (servers []*Server, err error) {
	program := throwaway.Lookup("nats-server")
	if program == "" {
		return nil, errors.New("nats-server is not installed: install the Debian package nats-server (make deps)")
	}
	ports, routes := make([]int, 2*n), make([]string, n)
	for i := range ports {
		if ports[i], err = throwaway.FreePort(); err != nil {
			return nil, err
		}
	}
	for i := range n {
		routes[i] = fmt.Sprintf("nats://127.0.0.1:%d", ports[n+i])
	}
	defer func() {
		if err != nil {
			Close(servers)
		}
	}()
	for i := range n {
		dir, err := os.MkdirTemp("", "gloom-nats-")
		if err != nil {
			return servers, err
		}
		addr := fmt.Sprintf("127.0.0.1:%d", ports[i])
		args := append([]string{"-a", "127.0.0.1", "-p", fmt.Sprint(ports[i])}, further...)
		if n > 1 {
			args = append(args, "--cluster_name", "gloom", "--cluster", routes[i], "--routes", strings.Join(routes, ","))
		}
		s := &Server{URL: "nats://" + addr, Server: &throwaway.Server{
			Program: program, Dir: dir, Args: func() []string { return args },
			Ready: func(ctx context.Context) error {
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
				if err == nil {
					c.Close()
				}
				return err
			},
		}}
		servers = append(servers, s)
		if err := s.Launch(); err != nil {
			return servers, err
		}
	}
	return servers, nil
}

// URLs returns the addresses of all servers in the form of --fleet.
func URLs(servers []*Server) string {
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	return strings.Join(urls, ",")
}

// Close stops all servers and removes their files.
func Close(servers []*Server) {
	for _, s := range servers {
		s.Close()
	}
}
