// Package natstest runs throw-away NATS servers, alone or as a cluster.
package natstest

import (
	"errors"
	"fmt"
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
func Cluster(n int, extraConfig ...string) (servers []*Server, err error) {
	program := throwaway.Lookup("nats-server")
	if program == "" {
		return nil, errors.New("nats-server is not installed: install the Debian package nats-server (make deps)")
	}
	defer func() {
		if err != nil {
			Close(servers)
		}
	}()
	var routes []string
	for range n {
		s, err := throwaway.New(program)
		if err != nil {
			return servers, err
		}
		servers = append(servers, &Server{Server: s, URL: "nats://" + s.Addr()})
		port, err := throwaway.FreePort()
		if err != nil {
			return servers, err
		}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	for i, s := range servers {
		args := append([]string{"-a", "127.0.0.1", "-p", fmt.Sprint(s.Port())}, extraConfig...)
		if n > 1 {
			args = append(args, "--cluster_name", "gloom", "--cluster", routes[i], "--routes", strings.Join(routes, ","))
		}
		s.Args, s.Ready = func() []string { return args }, s.Accepts
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
