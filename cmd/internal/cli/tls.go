package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync/atomic"

	"gloom/broker/guard"
)

// ClientTLS returns a client's TLS configuration: an authority's file instead of the system's, a
// certificate and its key, and the name that the server's certificate must have; each may be "".
// The errors name the option: prefix followed by ca, cert or key. Each connection reads the files
// again, because certificates are renewed while programs run; connections that the Go client does
// not open must be opened with DialTLS.
func ClientTLS(prefix, ca, cert, key, serverName string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pool, err := readAuthorities(prefix+"ca", ca)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = pool
		var latest atomic.Pointer[x509.CertPool] // what is used while the file cannot be read
		latest.Store(pool)
		conf.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			if pool, err := readAuthorities("", ca); err == nil {
				latest.Store(pool)
			}
			current := conf.Clone()
			current.RootCAs = latest.Load()
			return current, nil
		}
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%[1]scert and %[1]skey must be given together", prefix)
	}
	if cert != "" {
		pair, err := guard.LoadKeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%[1]scert %[2]s, %[1]skey %[3]s: %[4]w", prefix, cert, key, err)
		}
		conf.GetClientCertificate = latestCertificate(cert, key, &pair)
	}
	return conf, nil
}

// readAuthorities reads a file of CA certificates, which an option has named.
func readAuthorities(option, file string) (*x509.CertPool, error) {
	pem, err := guard.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s %s: holds no certificate in PEM form", option, file)
	}
	return pool, nil
}

// DialTLS returns a function for http.Transport.DialTLSContext that reads the files of a configuration of
// ClientTLS again for each connection.
func DialTLS(conf *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		current := conf
		if conf.GetConfigForClient != nil {
			var err error
			if current, err = conf.GetConfigForClient(nil); err != nil {
				return nil, err
			}
		}
		return (&tls.Dialer{Config: current}).DialContext(ctx, network, addr)
	}
}

// latestCertificate returns a function for tls.Config that reads a certificate and its key. While
// the files cannot be read or do not match, as when only one of them has been replaced, the
// function returns the certificate that was read before. At first this is pair.
func latestCertificate(cert, key string, pair *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var latest atomic.Pointer[tls.Certificate]
	latest.Store(pair)
	return func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair, err := guard.LoadKeyPair(cert, key); err == nil {
			latest.Store(&pair)
		}
		if pair := latest.Load(); r.SupportsCertificate(pair) == nil {
			return pair, nil
		}
		return &tls.Certificate{}, nil // none: the server's error is clearer than one about an unknown authority
	}
}
