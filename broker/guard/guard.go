// Package guard is who may come in to a daemon, and where: addresses,
// certificates, tokens, and the names under which an HTTP address may be asked.
// It listens, and serves nobody.
package guard

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// Options are what can be set about who may come in.
type Options struct {
	// Insecure allows addresses beyond this host without token or client
	// certificates.
	Insecure bool
	// TokenFile holds the tokens; "" asks for none.
	TokenFile string
	// TLSCert and TLSKey turn TLS on; TLSClientCA asks for client certificates.
	TLSCert, TLSKey, TLSClientCA string
	// HTTPHosts are further names, separated by commas, under which the HTTP
	// address may be asked.
	HTTPHosts string
}

// OptionError names the flag whose value cannot be.
type OptionError struct {
	Flag   string // without the dashes
	Value  string
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("--%s %s: %s", e.Flag, e.Value, e.Reason)
}

// Option is Flag, for those that know only the interface.
func (e *OptionError) Option() string { return e.Flag }

// CheckTLS returns an *OptionError for certificates that cannot be.
func (o *Options) CheckTLS() error {
	switch {
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return &OptionError{"tls-cert", fmt.Sprintf("%q", o.TLSCert), "goes together with --tls-key"}
	case o.TLSClientCA != "" && o.TLSCert == "":
		return &OptionError{"tls-client-ca", o.TLSClientCA, "needs --tls-cert and --tls-key"}
	case o.TLSCert != "":
		_, err := o.loadTLS()
		return err
	}
	return nil
}

// loadTLS reads the files of certificates.
func (o *Options) loadTLS() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return nil, &OptionError{"tls-cert", o.TLSCert, err.Error()}
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if o.TLSClientCA != "" {
		pem, err := os.ReadFile(o.TLSClientCA)
		if err != nil {
			return nil, &OptionError{"tls-client-ca", o.TLSClientCA, err.Error()}
		}
		cfg.ClientCAs = x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, &OptionError{"tls-client-ca", o.TLSClientCA, "holds no certificate in PEM form"}
		}
		cfg.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return cfg, nil
}

// Certificates are what TLS listeners show and ask for; they can be read again
// while connections stand.
type Certificates struct {
	opt *Options
	now atomic.Pointer[tls.Config]
}

// Certificates reads those of the options; nil and no error without any.
func (o *Options) Certificates() (*Certificates, error) {
	if o.TLSCert == "" {
		return nil, nil
	}
	c := &Certificates{opt: o}
	return c, c.Load()
}

// Load reads the files again; what was read before stays where they cannot be.
func (c *Certificates) Load() error {
	now, err := c.opt.loadTLS()
	if err == nil {
		c.now.Store(now)
	}
	return err
}

// Config lets every handshake use what was read last.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := c.now.Load().Clone()
			now.NextProtos = protocols
			return now, nil
		},
	}
}
