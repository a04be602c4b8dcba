// Package guard controls access to a daemon: addresses, certificates, tokens, and the Host
// names of an HTTP address. It binds addresses but serves nothing.
package guard

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Options say who may connect to a daemon.
type Options struct {
	// Insecure allows addresses that other hosts can reach without a token or a client
	// certificate.
	Insecure bool
	// TokenFile is the path of the token file; if it is "", no token is required.
	TokenFile string
	// TLSCert and TLSKey turn TLS on; TLSClientCA requires client certificates.
	TLSCert, TLSKey, TLSClientCA string
	// SharedCerts reports that another listener of this process has the same certificates and logs
	// their warnings.
	SharedCerts bool
	// HTTPHosts are further names, separated by commas, that the HTTP address accepts in the
	// Host header.
	HTTPHosts string
}

// OptionError names the flag whose value is invalid.
type OptionError struct {
	Flag   string // without the dashes
	Value  string
	Reason string
}

func (e *OptionError) Error() string {
	return fmt.Sprintf("--%s %s: %s", e.Flag, e.Value, e.Reason)
}

// Option returns Flag. The method is for code that knows the error only as an interface.
func (e *OptionError) Option() string { return e.Flag }

// CheckTLS returns an *OptionError for invalid certificates.
func (o *Options) CheckTLS() error {
	switch {
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return &OptionError{"tls-cert", fmt.Sprintf("%q", o.TLSCert), "must be given together with --tls-key"}
	case o.TLSClientCA != "" && o.TLSCert == "":
		return &OptionError{"tls-client-ca", o.TLSClientCA, "needs --tls-cert and --tls-key"}
	case o.TLSCert != "":
		_, err := o.loadTLS()
		return err
	}
	return nil
}

// loadTLS reads the certificate files.
func (o *Options) loadTLS() (*tls.Config, error) {
	cert, err := LoadKeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return nil, &OptionError{"tls-cert", o.TLSCert, err.Error()}
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if o.TLSClientCA != "" {
		pem, err := ReadFile(o.TLSClientCA)
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

// Certificates are the certificates of TLS listeners; they can be reloaded while
// connections are open.
type Certificates struct {
	options *Options
	log     zerolog.Logger
	current atomic.Pointer[tls.Config]
}

// LoadCertificates reads the certificates that the options name. It returns nil and no error if
// they name none. Warning is logged whenever certificates are read, unless SharedCerts is set.
func (o *Options) LoadCertificates(log zerolog.Logger) (*Certificates, error) {
	if o.TLSCert == "" {
		return nil, nil
	}
	c := &Certificates{options: o, log: log}
	return c, c.Load()
}

// Load reads the files again. If that fails, the old certificates stay in use.
func (c *Certificates) Load() error {
	config, err := c.options.loadTLS()
	if err == nil {
		c.current.Store(config)
		c.LogWarning()
	}
	return err
}

// LogWarning logs the Warning, if there is one. c may be nil.
func (c *Certificates) LogWarning() {
	if text, _ := c.Warning(time.Now()); text != "" && !c.options.SharedCerts {
		c.log.Warn().Str("tls_cert", c.options.TLSCert).Msg(text)
	}
}

// warnBefore is the time before a certificate expires at which Warning begins to warn. If the
// certificate is valid for less than ten times warnBefore, Warning warns in the last tenth of its
// validity.
const warnBefore = 14 * 24 * time.Hour

// Warning says why the certificate is not valid, or that its validity soon ends; otherwise it
// returns "". c may be nil.
func (c *Certificates) Warning(now time.Time) (text string, invalid bool) {
	if c == nil {
		return "", false
	}
	leaf := c.current.Load().Certificates[0].Leaf
	switch validFor := leaf.NotAfter.Sub(now); {
	case validFor < 0:
		return "the TLS certificate expired at " + leaf.NotAfter.Format(time.RFC3339), true
	case now.Before(leaf.NotBefore):
		return "the TLS certificate is not valid before " + leaf.NotBefore.Format(time.RFC3339), true
	case validFor < min(warnBefore, leaf.NotAfter.Sub(leaf.NotBefore)/10):
		return "the TLS certificate expires at " + leaf.NotAfter.Format(time.RFC3339), false
	}
	return "", false
}

// Config returns a configuration that makes every handshake use the latest certificates.
func (c *Certificates) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := c.current.Load().Clone()
			config.NextProtos = protocols
			return config, nil
		},
	}
}
