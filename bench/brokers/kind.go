package brokers

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
	Version    string // the version that it reports, "" if it reports none
	Command    string // the command line that started it, "" if it was already running
	Protocol   load.Protocol
	SubmitAddr string
	WorkerAddr string        // several, separated by commas: workers connect to them in turn
	HTTPAddr   string        // gloomd's address for operators, "" if it is not known
	PID        int           // 0 if it is not known
	OtherPIDs  []int         // its other processes, whose processor time counts too
	Build      *result.Build // how a gloomd that was started here was built
	Shutdown   func() error  // ends it; nil for one that was found running
}

// Stop ends a server that was started; a server that was found running continues.
func (s *Server) Stop() error {
	if s.Shutdown == nil {
		return nil
	}
	return s.Shutdown()
}

// Unsupported is the error for a server that lacks a feature of the measurement. It does not count
// as a failure.
type Unsupported string

func (l Unsupported) Error() string { return string(l) }

// Settings holds the settings with which a server is started.
type Settings struct {
	Gloomd   string   // path of gloomd; "": found or built
	Flags    []string // further flags for gloomd
	BodySize int      // largest body that the server must accept
	Unix     bool     // the server listens on unix sockets instead of TCP
}

// Kind is a kind of server.
type Kind struct {
	Name  string // the name that the command line accepts
	Title string
	start func(ctx context.Context, set Settings) (*Server, error)
}

// NewKind makes a kind that is not in Kinds.
func NewKind(name, title string, start func(ctx context.Context, set Settings) (*Server, error)) *Kind {
	return &Kind{Name: name, Title: title, start: start}
}

// Start starts a server of this kind on free loopback ports. If it is not installed,
// the error says which package has it.
func (k *Kind) Start(ctx context.Context, set Settings) (*Server, error) {
	s, err := k.start(ctx, set)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", k.Name, err)
	}
	s.Kind, s.Title = k.Name, k.Title
	return s, nil
}

// Kinds returns all kinds, in the order of the race.
func Kinds() []*Kind {
	return []*Kind{
		{"gloomd", "gloomd", startGloomd},
		{"relay", "relay on gnet", startRelay()},
		{"bare", "relay on epoll", startRelay("--bare")},
		{"nats", "NATS request/reply", debianServer{"nats-server", "nats-server", NATS, natsArgs, "--version"}.start},
		{"redis", "Redis lists", debianServer{"redis-server", "redis-server", Redis, redisArgs, "--version"}.start},
		{"gearmand-t1", "gearmand -t 1, tuned",
			debianServer{"gearmand", "gearman-job-server", Gearman, gearmandTunedArgs, "--version"}.start},
		{"gearmand", "gearmand, default", debianServer{"gearmand", "gearman-job-server", Gearman, gearmandArgs, "--version"}.start},
		{"beanstalkd", "beanstalkd", debianServer{"beanstalkd", "beanstalkd", Beanstalk, beanstalkdArgs, "-v"}.start},
	}
}

// KindByName returns the kind with that name.
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
