package throwaway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// WriteCerts writes an authority, and certificates of a server and a client from it, for 127.0.0.1
// and broker.test: ca.pem, server.pem, server.key, client.pem, client.key. These are valid for an
// hour. It also writes expired.pem and expired.key, a certificate that is no longer valid.
func WriteCerts(dir string) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if err := issue(filepath.Join(dir, "ca"), ca, ca, caKey, caKey); err != nil {
		return err
	}
	for i, name := range []string{"server", "client", "expired"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(2 + i)), Subject: pkix.Name{CommonName: name},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"broker.test"},
		}
		if name == "expired" {
			c.NotAfter = time.Now().Add(-time.Minute)
		}
		if err := issue(filepath.Join(dir, name), c, ca, key, caKey); err != nil {
			return err
		}
	}
	return nil
}

// issue writes a certificate that is signed by another certificate, and its key.
func issue(path string, c, issuer *x509.Certificate, key, byKey *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), byKey)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	err = os.WriteFile(path+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	if err != nil {
		return err
	}
	return os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), 0o600)
}
