package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/pflag"

	gloom "gloom/clients/go"
)

// tool is what all commands share.
type tool struct {
	out, err *os.File
	link     link
	started  bool // a command has begun: its errors are not about the command line
}

// note tells the user something on stderr.
func (t *tool) note(format string, args ...any) {
	fmt.Fprintf(t.err, "gloom: "+format+"\n", args...)
}

// link says where brokers are and how to get through to them.
type link struct {
	submit, worker []string
	http           string
	token          string
	tls            bool
	ca, cert, key  string
	serverName     string
	compat         bool
}

// bind makes flags of the options of the connection. settle looks for the same
// names in the environment.
func (l *link) bind(f *pflag.FlagSet) {
	f.SortFlags = false
	f.StringSliceVar(&l.submit, "submit-addr", []string{gloom.DefaultSubmitAddr}, "brokers' addresses for submitters, separated by commas (GLOOM_SUBMIT_ADDR)")
	f.StringSliceVar(&l.worker, "worker-addr", []string{gloom.DefaultWorkerAddr}, "brokers' addresses for workers, separated by commas (GLOOM_WORKER_ADDR)")
	f.StringVar(&l.http, "http-addr", "127.0.0.1:9997", "the broker's address for operators (GLOOM_HTTP_ADDR)")
	f.StringVar(&l.token, "token", "", "token; better in GLOOM_TOKEN, where ps does not show it")
	f.BoolVar(&l.tls, "tls", false, "speak TLS; implied by the options below (GLOOM_TLS)")
	f.StringVar(&l.ca, "tls-ca", "", "file of authorities to trust in place of the system's (GLOOM_TLS_CA)")
	f.StringVar(&l.cert, "tls-cert", "", "file of our certificate (GLOOM_TLS_CERT)")
	f.StringVar(&l.key, "tls-key", "", "file of its key (GLOOM_TLS_KEY)")
	f.StringVar(&l.serverName, "tls-server-name", "", "name that the broker's certificate must have (GLOOM_TLS_SERVER_NAME)")
	f.BoolVar(&l.compat, "compat", false, "speak the original protocol only (GLOOM_COMPAT)")
}

var linkFlags = []string{
	"submit-addr", "worker-addr", "http-addr", "token",
	"tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name", "compat",
}

// settle sets the options of the connection that no flag has set from the
// environment.
func settle(f *pflag.FlagSet) error {
	for _, name := range linkFlags {
		fl := f.Lookup(name)
		env := "GLOOM_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		v, ok := os.LookupEnv(env)
		if fl == nil || fl.Changed || !ok || v == "" {
			continue
		}
		if err := fl.Value.Set(v); err != nil {
			return usage("%s=%q: %v", env, v, err)
		}
	}
	return nil
}

// options are those of the client for one of its kinds of connection.
func (l *link) options(addrs []string, name string) ([]gloom.Option, error) {
	opts := []gloom.Option{gloom.Addrs(addrs...)}
	if l.compat {
		if l.token != "" {
			return nil, usage("--compat and --token exclude each other: the original protocol knows no tokens")
		}
		opts = append(opts, gloom.Compat())
	} else {
		opts = append(opts, gloom.ClientName(name))
		if l.token != "" {
			opts = append(opts, gloom.Token(l.token))
		}
	}
	conf, err := l.tlsConfig()
	if err != nil {
		return nil, err
	}
	if conf != nil {
		opts = append(opts, gloom.TLS(conf))
	}
	return opts, nil
}

// tlsConfig is nil where no TLS is asked for.
func (l *link) tlsConfig() (*tls.Config, error) {
	if !l.tls && l.ca == "" && l.cert == "" && l.key == "" && l.serverName == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: l.serverName}
	if l.ca != "" {
		pem, err := os.ReadFile(l.ca)
		if err != nil {
			return nil, usage("--tls-ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("--tls-ca %s: holds no certificate in PEM form", l.ca)
		}
	}
	if (l.cert == "") != (l.key == "") {
		return nil, usage("--tls-cert and --tls-key go together")
	}
	if l.cert != "" {
		pair, err := tls.LoadX509KeyPair(l.cert, l.key)
		if err != nil {
			return nil, usage("--tls-cert %s, --tls-key %s: %w", l.cert, l.key, err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// clientName is what brokers show of us.
func clientName(command string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("gloom %s %s, pid %d on %s", command, version(), os.Getpid(), host)
}

// version is the module's, or the commit's.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// noBroker is a failure to reach any of the addresses.
func noBroker(addrs []string, flag string, err error) error {
	var refused *gloom.RefusedError
	switch {
	case err == nil || errors.As(err, &refused):
		return err
	case !unreachable(err): // about the options
		return usage("%s", plain(err))
	}
	return faultf(exitUnreachable, "no broker reached at %s: %s", strings.Join(addrs, ", "), cause(err)).
		advise("%s", reachHint(err, " --"+flag+" names another address"))
}
