package guard

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestCertificateWarningIsLogged: a certificate that is not valid, or not for long, is loaded, and the log
// says so at each load.
func TestCertificateWarningIsLogged(t *testing.T) {
	const day = 24 * time.Hour
	dir := t.TempDir()
	o := Options{TLSCert: filepath.Join(dir, "cert"), TLSKey: filepath.Join(dir, "key")}
	for name, c := range map[string]struct {
		from, until time.Duration // from now
		wantText    string
		invalid     bool
	}{
		"long":    {-day, 30 * day, "", false},
		"short":   {-time.Hour, time.Hour, "", false},
		"soon":    {-300 * day, 13 * day, "expires at ", false},
		"at once": {-day, time.Hour, "expires at ", false},
		"expired": {-2 * day, -day, "expired at ", true},
		"early":   {day, 300 * day, "not valid before ", true},
	} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		plan := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(c.from), NotAfter: time.Now().Add(c.until)}
		der, err := x509.CreateCertificate(rand.Reader, plan, plan, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		keyDER, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{o.TLSCert: {Type: "CERTIFICATE", Bytes: der}, o.TLSKey: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
			if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var log bytes.Buffer
		certs, err := o.LoadCertificates(zerolog.New(&log))
		if err != nil {
			t.Fatal(name, err)
		}
		if err := certs.Load(); err != nil {
			t.Fatal(name, err)
		}
		text, invalid := certs.Warning(time.Now())
		if invalid != c.invalid || !strings.Contains(text, c.wantText) || (text == "") != (c.wantText == "") {
			t.Errorf("%s: %q, %v", name, text, invalid)
		}
		if n := strings.Count(log.String(), "the TLS certificate"); n != map[bool]int{true: 0, false: 2}[c.wantText == ""] {
			t.Errorf("%s: the log says it %d times: %s", name, n, &log)
		}
	}
	o.SharedCerts = true
	var log bytes.Buffer
	if _, err := o.LoadCertificates(zerolog.New(&log)); err != nil || log.Len() > 0 {
		t.Errorf("shared certificates: %v, and the log says %s", err, &log)
	}
	if text, _ := (*Certificates)(nil).Warning(time.Now()); text != "" {
		t.Error(text)
	}
}
