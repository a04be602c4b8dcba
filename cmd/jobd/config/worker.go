package config

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"gloom/cmd/jobd/peer"
	"gloom/wire"
)

// The configuration files have these paths by default.
const (
	DefaultWorkerPath = "/etc/jobd.conf"
	DefaultMasterPath = "/etc/jobd-master.conf"
	DefaultJobctlFile = ".jobctl.conf" // in the user's home directory
)

// Worker is the configuration of jobd.
type Worker struct {
	Name   string // "" means the host's name
	Server Server

	MasterHost             string // "" or port 0: no master
	MasterPort             int
	MasterReconnectTimeout time.Duration // the longest pause between two attempts

	Log   Log
	MySQL MySQL

	Launcher        string   // template of the command; if "", the broker's workers run the rows
	LauncherCwd     string   // "" means the daemon's own directory
	LauncherEnv     []string // NAME=value, as listed in the file; added to the daemon's environment
	MaxOutputBuffer int      // maximum number of bytes kept of stdout and of stderr; -1 means what their columns hold

	Targets []Target // as listed in the file; may be empty

	Broker Broker

	HTTPAddr        string        // address of metrics and health; "" for none
	Orphans         string        // what happens to the running rows of a dead daemon: "fail" or "requeue"
	ClaimsTable     string        // companion table; "" means the table's name and "_claims"
	Lease           time.Duration // how long a claim outlives its last renewal
	PollInterval    time.Duration // time between two regular polls; 0 for no regular polls
	ShutdownTimeout time.Duration // how long running jobs may take to end after SIGTERM
	SpoolDir        string        // where results wait while the database is away; "" for memory

	Warnings []string // likely mistakes that do not stop the daemon
}

// Target is a target and how many of its jobs may run at once.
type Target struct {
	Name        string
	Concurrency int // at least 1
}

// Server configures the control port of a daemon.
type Server struct {
	Host                 string
	Port                 int    // 0 for a free one
	Password             string // "" for none
	AlwaysAllowLocalhost bool   // loopback peers need no password
	MaxConnections       int
	MaxMessage           int // bytes of one request
	MaxUnfinished        int // bytes of incomplete messages, of all connections together
}

// Listen opens the port.
func (s *Server) Listen(log zerolog.Logger) (*peer.Server, error) {
	return peer.Listen(s.Host, s.Port, peer.Options{
		Password: s.Password, AllowLocalhost: s.AlwaysAllowLocalhost,
		MaxConnections: s.MaxConnections, MaxMessage: s.MaxMessage, MaxUnfinished: s.MaxUnfinished, Log: log,
	})
}

// MySQL is the database and the table of jobs.
type MySQL struct {
	Host       string
	Port       int
	Socket     string // path; if not "", used instead of host and port
	User       string
	Password   string
	Database   string
	Table      string
	TLS        string // "false", "preferred", "skip-verify" or "true"
	FetchLimit int    // maximum number of rows of one page; 0 for no limit
}

// Broker is the Gloom broker that the rows go through. Without addresses the daemon
// starts its own.
type Broker struct {
	SubmitAddr, WorkerAddr                string // "host:port" or "unix:/path"
	Token                                 string
	TLSCA, TLSCert, TLSKey, TLSServerName string // three paths and a name; any of them enables TLS
	TypePrefix                            string // before a target's name, if there is no launcher
	IDPrefix                              string // before a row's id; "" means "database.table/"
}

// LoadWorker reads the configuration of jobd.
func LoadWorker(path string) (*Worker, error) { return load(path, readWorker) }

func readWorker(doc *document, r *reader) *Worker {
	w := &Worker{Name: r.readText("name", ""), Server: r.readServer()}
	w.MasterHost = r.readText("master_host", "")
	w.MasterPort = r.readInteger("master_port", 0, 0, math.MaxUint16)
	w.MasterReconnectTimeout = r.readSeconds("master_reconnect_timeout", "an integer", 10*time.Second, 0)
	w.Log = r.readLog()
	w.MySQL = r.readMySQL()

	w.Broker = r.readBroker()
	if w.Broker.SubmitAddr == "" {
		r.require("launcher") // otherwise the rows could not run
	}
	w.Launcher = r.readText("launcher", "")
	w.LauncherCwd = r.readText("launcher.cwd", "")
	w.MaxOutputBuffer = r.readInteger("max_output_buffer", -1, 0, math.MaxInt32)
	w.readTargets(doc, r)

	w.PollInterval = r.readSeconds("poll_interval", "a number", 0, 0)
	w.HTTPAddr = r.readText("http_addr", "")
	w.Orphans = r.readChoice("orphans", "fail", "requeue")
	w.ClaimsTable = r.readText("claims_table", "")
	w.Lease = r.readSeconds("lease", "a number", 10*time.Second, 2*time.Second)
	w.ShutdownTimeout = r.readSeconds("shutdown_timeout", "a number", 30*time.Second, 0)
	w.SpoolDir = r.readText("spool_dir", "")

	const env = "launcher.env."
	for _, e := range doc.unnamedSection().entries {
		if name, ok := strings.CutPrefix(e.key, env); ok {
			w.LauncherEnv = append(w.LauncherEnv, name+"="+e.value)
		}
	}
	w.Warnings = r.warnUnknownKeys(env)
	if (w.MasterHost == "") != (w.MasterPort == 0) {
		w.Warnings = append(w.Warnings, "master_host and master_port must both be set: no connection to a master")
	}
	return w
}

func (r *reader) readServer() Server {
	r.require("host")
	r.require("port")
	return Server{
		Host:                 r.readText("host", ""),
		Port:                 r.readInteger("port", 0, 0, math.MaxUint16),
		Password:             r.readText("password", ""),
		AlwaysAllowLocalhost: r.readBoolean("always_allow_localhost"),
		MaxConnections:       r.readInteger("max_connections", 1024, 1, 1<<20),
		MaxMessage:           r.readInteger("max_message_size", 16<<20, 1<<10, 1<<30),
		MaxUnfinished:        r.readInteger("max_unfinished_size", 256<<20, 1<<20, math.MaxInt),
	}
}

func (r *reader) readMySQL() MySQL {
	m := MySQL{Socket: r.readText("mysql_socket", "")}
	if m.Socket == "" {
		r.require("mysql_host")
		r.require("mysql_port")
	}
	m.Host = r.readText("mysql_host", "")
	m.Port = r.readInteger("mysql_port", 3306, 1, math.MaxUint16)
	r.require("mysql_user")
	m.User = r.readText("mysql_user", "")
	// An empty password is allowed, but the key must be there.
	if _, ok := r.lookup("mysql_password"); !ok {
		r.fail("mysql_password", "'mysql_password' is not defined")
	}
	m.Password = r.readText("mysql_password", "")
	r.require("mysql_database")
	m.Database = r.readText("mysql_database", "")
	r.require("mysql_table")
	m.Table = r.readText("mysql_table", "")
	m.FetchLimit = r.readInteger("mysql_fetch_limit", 100, 0, math.MaxInt32)
	m.TLS = "false"
	if value, ok := r.lookup("mysql_tls"); ok && value != "false" {
		m.TLS = r.readChoice("mysql_tls", "preferred", "skip-verify", "true")
	}
	return m
}

func (r *reader) readBroker() Broker {
	b := Broker{
		SubmitAddr:    r.readText("broker_submit_addr", ""),
		WorkerAddr:    r.readText("broker_worker_addr", ""),
		Token:         r.readText("broker_token", ""),
		TLSCA:         r.readText("broker_tls_ca", ""),
		TLSCert:       r.readText("broker_tls_cert", ""),
		TLSKey:        r.readText("broker_tls_key", ""),
		TLSServerName: r.readText("broker_tls_server_name", ""),
		TypePrefix:    r.readText("broker_type_prefix", ""),
		IDPrefix:      r.readText("broker_id_prefix", ""),
	}
	if (b.TLSCert == "") != (b.TLSKey == "") {
		r.fail("broker_tls_cert", "'broker_tls_cert' and 'broker_tls_key' belong together")
	}
	return b
}

func (w *Worker) readTargets(doc *document, r *reader) {
	list := doc.section("targets")
	if list == nil {
		if _, ok := r.lookup("targets"); ok {
			r.fail("targets", "'targets' must be an object")
			return
		}
		r.fail("targets", "'targets' is not defined")
		return
	}
	for _, e := range list.entries {
		if e.key == "null" {
			r.failAt(list.lines[e.key], "word 'null' is reserved, please don't use it as a target name")
			continue
		}
		n, ok := leadingInt(e.value)
		switch {
		case !ok:
			r.failAt(list.lines[e.key], "value of target '%s' must be a number", e.key)
			continue
		case n < 1:
			r.failAt(list.lines[e.key], "target '%s' has invalid value", e.key)
			continue
		}
		if err := w.CheckTarget(e.key); err != nil {
			r.failAt(list.lines[e.key], "%w", err)
		}
		w.Targets = append(w.Targets, Target{Name: e.key, Concurrency: min(n, math.MaxInt32)})
	}
}

// TypeOf returns the type of a target's jobs; with a launcher, the type is private to this daemon.
func (w *Worker) TypeOf(target string) string {
	if w.Launcher != "" {
		return w.Name + "/" + w.MySQL.Database + "." + w.MySQL.Table + "/" + target
	}
	return w.Broker.TypePrefix + target
}

// CheckTarget returns an error if a broker would refuse the jobs of a target.
func (w *Worker) CheckTarget(target string) error {
	if err := wire.CheckName("type", w.TypeOf(target)); err != nil {
		return fmt.Errorf("target '%s' cannot have jobs: %s", target, err.Reason)
	}
	return nil
}
