package peers

import (
	"context"
	"fmt"
	"strings"

	"gloom/bench/load"
	"gloom/bench/result"
)

// Server is a server under measurement.
type Server struct {
	Kind       string // name of its kind
	Title      string // for tables
	Version    string // as it says itself, "" when it does not
	Command    string // how it was started, "" when it was found running
	Protocol   load.Protocol
	SubmitAddr string
	WorkAddr   string
	HTTPAddr   string        // of gloomd, "" when unknown
	PID        int           // 0 when unknown
	Build      *result.Build // of a gloomd that was started
	Ended      func() error  // ends it; nil for one that was found running
}

// Stop ends a server that was started; one that was found running stays.
func (s *Server) Stop() error {
	if s.Ended == nil {
		return nil
	}
	return s.Ended()
}

// Settings is what starting a server may need to know.
type Settings struct {
	Gloomd   string   // path of gloomd; "": found or built
	Flags    []string // further flags for gloomd
	BodySize int      // largest body it must take
}

// Kind is a kind of server.
type Kind struct {
	Name    string // as given on the command line
	Title   string
	Program string // "" for what is built into this program
	Package string // of Debian and its kin
	start   func(ctx context.Context, k *Kind, set *Settings) (*Server, error)
}

// NewKind makes a kind of its own making.
func NewKind(name, title string, start func(ctx context.Context, set Settings) (*Server, error)) *Kind {
	return &Kind{Name: name, Title: title, start: func(ctx context.Context, _ *Kind, set *Settings) (*Server, error) {
		return start(ctx, *set)
	}}
}

// Start starts a server of this kind on free ports of the loopback interface,
// installing its package where it is missing and that is permitted.
func (k *Kind) Start(ctx context.Context, set Settings) (*Server, error) {
	s, err := k.start(ctx, k, &set)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", k.Name, err)
	}
	s.Kind, s.Title = k.Name, k.Title
	return s, nil
}

// Kinds are all kinds, in the order of the race.
func Kinds() []*Kind {
	return []*Kind{
		{Name: "gloomd", Title: "gloomd", start: startGloomd},
		{Name: "relay", Title: "relay on gnet", start: startRelay},
		{Name: "nats", Title: "NATS request/reply", Program: "nats-server", Package: "nats-server", start: startNATS},
		{Name: "redis", Title: "Redis lists", Program: "redis-server", Package: "redis-server", start: startRedis},
		{Name: "gearmand-t1", Title: "gearmand -t 1, tuned", Program: "gearmand", Package: "gearman-job-server", start: startGearmandTuned},
		{Name: "gearmand", Title: "gearmand, default", Program: "gearmand", Package: "gearman-job-server", start: startGearmand},
		{Name: "beanstalkd", Title: "beanstalkd", Program: "beanstalkd", Package: "beanstalkd", start: startBeanstalkd},
	}
}

// KindByName finds a kind.
func KindByName(name string) (*Kind, error) {
	var names []string
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
		names = append(names, k.Name)
	}
	return nil, fmt.Errorf("server %q: must be one of %s, or SUBMIT_ADDR,WORKER_ADDR of a running gloomd", name, strings.Join(names, ", "))
}
