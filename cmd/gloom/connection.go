package main

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"gloom/broker/guard"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
)

const connectionHelp = `Addresses are host:port, unix:/path, or tls://host:port for jobs and workers.
The flags below can also be set in the environment, under the names in brackets,
and in contexts: sections of ~/.config/gloom/contexts.toml ($XDG_CONFIG_HOME)
with the names of the flags as keys. A flag overrides the environment, and the
environment overrides the context "default". A context named by --context is
used instead of the environment.

    [default]
    submit-addr = "127.0.0.1:9998"
    [prod]
    submit-addr = ["a.example:9998", "b.example:9998"]
    http-addr = "a.example:9997"
    token-file = "/home/me/.config/gloom/prod.token"
    [jq]
    door = "a.example:9996"

--door is the HTTP address of a jq-master, serverlessd or jobd-master. Commands
that show and control then talk to that daemon instead of a broker, and say what
it does not have.`

// defaultHTTPAddr is the default of --http-addr.
const defaultHTTPAddr = "127.0.0.1:9997"

// connection holds the addresses of brokers, and the options of connections to them.
type connection struct {
	context                   string
	submitAddrs, workerAddrs  []string
	httpAddr, doorAddr        string
	token                     string
	tokenFile                 string
	tls                       bool
	caFile, certFile, keyFile string
	serverName                string
	cachedOperator            *operatorClient // created when it is first needed
}

// bind defines the flags of the connection.
func (l *connection) bind(f *pflag.FlagSet) {
	f.StringVar(&l.context, "context", "", "section of the contexts file to take options from (GLOOM_CONTEXT)")
	f.StringSliceVar(&l.submitAddrs, "submit-addr", nil, "brokers' addresses for submitters, separated by commas (GLOOM_SUBMIT_ADDR); by default $XDG_RUNTIME_DIR/gloom/submit.sock (for root or without that variable /run/gloom/submit.sock), then "+gloom.DefaultSubmitAddr)
	f.StringSliceVar(&l.workerAddrs, "worker-addr", nil, "brokers' addresses for workers, separated by commas (GLOOM_WORKER_ADDR); by default worker.sock beside submit.sock, then "+gloom.DefaultWorkerAddr)
	f.StringVar(&l.httpAddr, "http-addr", defaultHTTPAddr, "the broker's address for operators (GLOOM_HTTP_ADDR)")
	f.StringVar(&l.doorAddr, "door", "", "address of a jq-master, serverlessd or jobd-master to inspect and control instead of a broker (GLOOM_DOOR)")
	f.StringVar(&l.token, "token", "", "token; it is safer in GLOOM_TOKEN, where ps does not show it")
	f.StringVar(&l.tokenFile, "token-file", "", "file that holds the token (GLOOM_CLIENT_TOKEN_FILE)")
	f.BoolVar(&l.tls, "tls", false, "speak TLS; implied by the other --tls- options (GLOOM_TLS)")
	f.StringVar(&l.caFile, "tls-ca", "", "file of CA certificates to trust instead of the system's (GLOOM_TLS_CA)")
	f.StringVar(&l.certFile, "tls-cert", "", "file of the client certificate (GLOOM_CLIENT_CERT)")
	f.StringVar(&l.keyFile, "tls-key", "", "file of the key of --tls-cert (GLOOM_CLIENT_KEY)")
	f.StringVar(&l.serverName, "tls-server-name", "", "name that the broker's certificate must have (GLOOM_TLS_SERVER_NAME)")
}

var connectionOptions = []string{
	"submit-addr", "worker-addr", "http-addr", "door", "token", "token-file",
	"tls", "tls-ca", "tls-cert", "tls-key", "tls-server-name",
}

// ownVariables has gloomd's environment variables whose options gloom has, too. It maps each to the
// variable that gloom reads instead.
var ownVariables = map[string]string{
	"GLOOM_TOKEN_FILE": "GLOOM_CLIENT_TOKEN_FILE",
	"GLOOM_TLS_CERT":   "GLOOM_CLIENT_CERT",
	"GLOOM_TLS_KEY":    "GLOOM_CLIENT_KEY",
}

// lookupEnv looks up an environment variable; an empty one counts as not set.
func lookupEnv(name string) (string, bool) {
	if ownName := ownVariables[name]; ownName != "" {
		name = ownName
	}
	v := os.Getenv(name)
	return v, v != ""
}

// resolve sets the options of the connection that no flag has set.
func (c *connection) resolve(f *pflag.FlagSet) error {
	s := cli.Settings{EnvPrefix: "GLOOM_", Names: []string{"context"}, Lookup: lookupEnv}
	cli.WarnMisspelt(os.Stderr, "gloom", s.EnvPrefix, slices.Concat(s.Names, connectionOptions, []string{"client-token-file", "client-cert", "client-key"}))
	if err := s.Apply(f); err != nil {
		return err
	}
	file, err := readContext(c.context)
	if err != nil {
		return err
	}
	if f.Changed("context") {
		s.Lookup = func(string) (string, bool) { return "", false }
	}
	if f.Changed("token") && f.Changed("token-file") {
		return cli.Usagef("--token and --token-file cannot be used together")
	}
	s.Names = connectionOptions
	if f.Changed("http-addr") && !f.Changed("door") { // a flag wins
		s.Names = slices.DeleteFunc(slices.Clone(connectionOptions), func(name string) bool { return name == "door" })
	}
	// A token file is read before a source of lower precedence may name another token.
	for _, s.File = range []*cli.File{nil, file} {
		if err := cmp.Or(c.readToken(f), s.Apply(f)); err != nil {
			return err
		}
	}
	return c.readToken(f)
}

// contextsPath returns the path of the file of contexts, which need not exist.
func contextsPath() (string, error) {
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "gloom", "contexts.toml"), err
}

// readContext reads the context with this name; if name is "", the default one, or nil if there is none.
func readContext(name string) (*cli.File, error) {
	path, err := contextsPath()
	if name == "" {
		if _, missing := os.Stat(path); err != nil || missing != nil {
			return nil, nil
		}
	} else if err != nil {
		return nil, cli.Usagef("--context: %w", err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, cli.Usagef("--context %s: there is no file %s", name, path).SetHint("gloom help flags shows an example of it")
	}
	file, err := cli.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for _, k := range file.Keys() {
		if _, ok := file.Table(k); !ok {
			return nil, cli.Usagef("%w", file.Errorf(k, "%q is outside of a context: put it below [default]", k))
		}
	}
	table, ok := file.Table(name)
	if name == "" {
		if table, ok = file.Table("default"); !ok {
			return nil, nil
		}
	}
	if !ok {
		f := cli.Usagef("%w", file.Errorf("", "unknown context %q", name))
		if suggestions := cli.Suggest(name, file.Keys()); suggestions != "" {
			return nil, f.SetHint("did you mean %s?", suggestions)
		}
		return nil, f.SetHint("it has %s", strings.Join(file.Keys(), ", "))
	}
	return table, nil
}

// readToken reads the token from its file, unless one was given.
func (c *connection) readToken(f *pflag.FlagSet) error {
	if c.token != "" || c.tokenFile == "" {
		return nil
	}
	data, err := guard.ReadFile(c.tokenFile)
	if err != nil {
		return cli.Usagef("--token-file %s", strings.TrimPrefix(strings.TrimPrefix(err.Error(), "open "), "read "))
	}
	token := string(bytes.TrimSpace(data))
	if token == "" || strings.ContainsAny(token, " \t\n") {
		return cli.Usagef("--token-file %s: must hold a token and nothing else", c.tokenFile)
	}
	return f.Set("token", token)
}

// options returns the client's options for one kind of connection.
func (c *connection) options(addrs []string, name string) ([]gloom.Option, error) {
	opts := []gloom.Option{gloom.ClientName(name), gloom.Token(c.token)}
	if len(addrs) > 0 {
		opts = append(opts, gloom.Addrs(addrs...))
	}
	conf, err := c.tlsConfig()
	local := len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a string) bool { return !strings.HasPrefix(a, "unix:") })
	if err != nil || conf == nil || local { // brokers speak no TLS on unix sockets
		return opts, err
	}
	return append(opts, gloom.TLS(conf)), nil
}

// tlsConfig returns the configuration of TLS, nil if no option asks for TLS.
func (c *connection) tlsConfig() (*tls.Config, error) {
	if !c.tls && c.caFile == "" && c.certFile == "" && c.keyFile == "" && c.serverName == "" {
		return nil, nil
	}
	conf, err := cli.ClientTLS("--tls-", c.caFile, c.certFile, c.keyFile, c.serverName)
	if err != nil {
		return nil, cli.Usagef("%w", err)
	}
	return conf, nil
}

// clientName returns the name that brokers show for this client.
func clientName(command string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("gloom %s %s, pid %d on %s", command, cli.Version(), os.Getpid(), host)
}
