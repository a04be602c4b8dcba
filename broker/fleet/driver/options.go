package driver

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"gloom/broker/fleet"
	"gloom/broker/guard"
)

// Options say which fleet a broker joins. Without Servers it joins none.
type Options struct {
	// Servers are the URLs of NATS servers, separated by commas.
	Servers string
	// Name identifies a broker of the fleet; "" uses the host's name and the port of
	// submitters.
	Name string
	// Prefix is the prefix of all subjects of the fleet.
	Prefix string
	// Creds is the path of a NATS credentials file. CA is the path of a file of authorities that
	// verify the servers. Cert and Key are the paths of the client certificate that the servers may
	// require.
	Creds, CA, Cert, Key string
	// MaxHeld bounds the bytes that wait for other brokers or are in flight to them, in total
	// (fleet.Config.MaxHeld).
	MaxHeld int64
	// Insecure allows NATS servers on other hosts without TLS or credentials.
	Insecure bool
}

// Prefix is the default of Options.Prefix.
const Prefix = "gloom"

var subjectPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// Validate checks the options. Its error is a *guard.OptionError.
func (o *Options) Validate() error {
	invalidErr := func(flag, value, reason string) error {
		return &guard.OptionError{Flag: flag, Value: value, Reason: reason}
	}
	if o.Servers == "" {
		prefix := o.Prefix
		if prefix == Prefix {
			prefix = ""
		}
		for _, f := range [...]struct{ flag, value string }{
			{"fleet-name", o.Name}, {"fleet-prefix", prefix}, {"fleet-creds", o.Creds}, {"fleet-ca", o.CA}, {"fleet-cert", o.Cert}, {"fleet-key", o.Key},
		} {
			if f.value != "" {
				return invalidErr(f.flag, fmt.Sprintf("%.200q", f.value), "it is for joining a fleet, but fleet, the list of servers, is missing")
			}
		}
		return nil
	}
	if !subjectPattern.MatchString(o.Prefix) || len(o.Prefix) > fleet.MaxNameBytes {
		return invalidErr("fleet-prefix", fmt.Sprintf("%.200q", o.Prefix), "a prefix consists of words of letters, digits, - and _, joined by dots, at most 128 bytes")
	}
	if len(o.Name) > fleet.MaxNameBytes || !utf8.ValidString(o.Name) || strings.ContainsFunc(o.Name, unicode.IsControl) {
		return invalidErr("fleet-name", fmt.Sprintf("%.200q", o.Name), "a name is text of at most 128 bytes without control characters")
	}
	for _, f := range []struct {
		flag, path string
		check      func([]byte) error
	}{
		{"fleet-creds", o.Creds, checkCredentials}, {"fleet-ca", o.CA, checkCA}, {"fleet-cert", o.Cert, nil}, {"fleet-key", o.Key, nil},
	} {
		if f.path == "" {
			continue
		}
		data, err := guard.ReadFile(f.path)
		if err == nil && f.check != nil {
			err = f.check(data)
		}
		if err != nil {
			return invalidErr(f.flag, f.path, err.Error())
		}
	}
	if (o.Cert == "") != (o.Key == "") {
		return invalidErr("fleet-cert", o.Cert, "must be given together with fleet-key")
	}
	if o.Cert != "" {
		if _, err := guard.LoadKeyPair(o.Cert, o.Key); err != nil {
			return invalidErr("fleet-cert", o.Cert, err.Error())
		}
	}
	for _, server := range strings.Split(o.Servers, ",") {
		u, err := url.Parse(server)
		switch {
		case err != nil || !validURL(u):
			return invalidErr("fleet", server, "want nats://host:4222 or tls://host:4222, several separated by commas")
		case !o.Insecure && !o.isTrusted(u):
			return invalidErr("fleet", server, "NATS on another host without TLS or credentials lets anybody who can reach it take jobs; use fleet-creds, fleet-ca or tls://, or --insecure")
		}
	}
	return nil
}

// validURL reports whether the URL names a NATS server and has no part that would be ignored.
func validURL(u *url.URL) bool {
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "4222"), 10, 16)
	return u.Hostname() != "" && (u.Scheme == "nats" || u.Scheme == "tls") && err == nil && port > 0 &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == ""
}

// checkCredentials returns what is wrong with a file of NATS credentials.
func checkCredentials(data []byte) error {
	_, err := nkeys.ParseDecoratedNKey(data)
	return err
}

// checkCA returns what is wrong with a file of certificates.
func checkCA(data []byte) error {
	if !x509.NewCertPool().AppendCertsFromPEM(data) {
		return errors.New("there is no certificate in it")
	}
	return nil
}

// isTrusted reports whether the server is on this host, or has TLS or credentials.
func (o *Options) isTrusted(u *url.URL) bool {
	host := u.Hostname()
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback() ||
		u.Scheme == "tls" || u.User != nil || o.Creds != "" || o.CA != "" || o.Cert != ""
}

// awayReason returns why NATS is away, with the options that may help.
func (o *Options) awayReason(err error) string {
	why := err.Error()
	for _, h := range [...]struct{ part, text string }{
		{"unknown authority", "fleet-ca names the authority to trust"},
		{"bad certificate", "NATS asks for a certificate from an authority that it trusts: fleet-cert, fleet-key"},
		{"expired certificate", "NATS no longer takes our certificate: fleet-cert, fleet-key"},
		{"certificate required", "NATS asks for a certificate: fleet-cert, fleet-key"},
		{nats.ErrSecureConnWanted.Error(), "NATS has no TLS, which tls://, fleet-ca and fleet-cert require"},
		{nats.ErrPermissionViolation.Error(), "the user must be allowed to publish and subscribe on all subjects that begin with fleet-prefix"},
		{nats.ErrAuthorization.Error(), "set fleet-creds, or user:password@ in the URL"},
		{"Authorization Violation", "set fleet-creds, or user:password@ in the URL"},
	} {
		if strings.Contains(why, h.part) {
			return why + " (" + h.text + ")"
		}
	}
	// A server that rejects our certificate closes at once, and its message about that may
	// be lost with the connection.
	if isSilentClose(err) && o.usesTLS() {
		return why + " (NATS may ask for a certificate that it trusts: fleet-cert, fleet-key)"
	}
	return why
}

// isSilentClose reports whether err means that the other end closed the connection without a message.
func isSilentClose(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// usesTLS reports whether any server is reached with TLS.
func (o *Options) usesTLS() bool {
	return o.CA != "" || o.Cert != "" || strings.Contains(o.Servers, "tls://")
}

// clientOptions returns the options of the NATS client.
func (o *Options) clientOptions() (opts []nats.Option) {
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	if o.CA != "" {
		opts = append(opts, nats.RootCAs(o.CA))
	}
	if o.Cert != "" {
		opts = append(opts, nats.ClientCert(o.Cert, o.Key))
	}
	return opts
}
