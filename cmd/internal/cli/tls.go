package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync/atomic"
)

// ClientTLS returns a client's TLS configuration: an authority's file instead of the system's, a
// certificate and its key, and the name that the server's certificate must have; each may be "".
// The errors name the option: prefix followed by ca, cert or key. Each connection reads the certificate
// and its key again, because certificates are renewed while programs run.
func ClientTLS(prefix, ca, cert, key, serverName string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%sca: %w", prefix, err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%sca %s: holds no certificate in PEM form", prefix, ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, fmt.Errorf("%[1]scert and %[1]skey must be given together", prefix)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%[1]scert %[2]s, %[1]skey %[3]s: %[4]w", prefix, cert, key, err)
		}
		conf.GetClientCertificate = latestCertificate(cert, key, &pair)
	}
	return conf, nil
}

// latestCertificate returns a function for tls.Config that reads a certificate and its key. While the
// files cannot be read or do not match, as when one of them has been replaced and the other has not,
// the function returns the certificate that was read before, which is pair at first.
func latestCertificate(cert, key string, pair *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var latest atomic.Pointer[tls.Certificate]
	latest.Store(pair)
	return func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair, err := tls.LoadX509KeyPair(cert, key); err == nil {
			latest.Store(&pair)
		}
		if pair := latest.Load(); r.SupportsCertificate(pair) == nil {
			return pair, nil
		}
		return &tls.Certificate{}, nil // none: the server's error is clearer than one about an unknown authority
	}
}
