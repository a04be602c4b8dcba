package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// ClientTLS returns a client's TLS configuration: an authority's file instead of the system's, a
// certificate and its key, and the name that the server's certificate must have; each may be "".
// The errors name the option: prefix followed by ca, cert or key.
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
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}
