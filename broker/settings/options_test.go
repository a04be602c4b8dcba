package settings

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/broker/guard"
)

// writeCertificate writes a certificate and its key to files, and returns their paths.
func writeCertificate(t *testing.T) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	if err := throwaway.WriteCerts(dir); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "server.pem"), filepath.Join(dir, "server.key")
}

func TestValidateNamesInvalidFlag(t *testing.T) {
	cert, key := writeCertificate(t)
	other, _ := writeCertificate(t)
	if o := Default(); o.Validate() != nil {
		t.Fatalf("the defaults: %v", o.Validate())
	}
	for _, c := range []struct {
		set       func(o *Options)
		flag      string // "" if it is valid
		wantError string
	}{
		{func(o *Options) { o.MaxFrame = 1 << 10; o.MaxInbound = 1 << 10 }, "", ""},
		{func(o *Options) { o.MaxFrame = 1<<10 - 1 }, "max-frame", "from 1024 to 1073741824"},
		{func(o *Options) { o.MaxFrame = 1 << 30; o.MaxInbound = 1<<30 - 1 }, "max-inbound", "at least max-frame, 1073741824"},
		{func(o *Options) { o.MaxJobs = -1 }, "max-jobs", "-1"},
		{func(o *Options) { o.MaxTypes = 0 }, "max-types", "from 1"},
		{func(o *Options) { o.MaxPrefetch = 0 }, "max-prefetch", "from 1"},
		{func(o *Options) { o.Retries = 1001 }, "retries", "from 0 to 1000"},
		{func(o *Options) { o.DrainTimeout = -time.Second }, "drain-timeout", "-1s"},
		{func(o *Options) { o.DefaultType = strings.Repeat("x", 1025) }, "default-type", "1025 bytes"},
		{func(o *Options) { o.DefaultType = "" }, "", ""},

		{func(o *Options) { o.SubmitAddr = "" }, "submit-addr", "neither host:port, such as 127.0.0.1:9998, nor unix:/path"},
		{func(o *Options) { o.HTTPAddr = "" }, "", ""},
		{func(o *Options) { o.HTTPAddr = "127.0.0.1:1,127.0.0.1:2" }, "http-addr", "must be one address"},
		{func(o *Options) { o.SubmitAddr = "7070" }, "submit-addr", "neither host:port, such as 127.0.0.1:7070, nor unix:/path"},
		{func(o *Options) { o.WorkerAddr = "127.0.0.1:" }, "worker-addr", "port"},
		{func(o *Options) { o.WorkerAddr = "127.0.0.1:65536" }, "worker-addr", "port"},
		{func(o *Options) { o.WorkerAddr = "127.0.0.1:-1" }, "worker-addr", "port"},
		{func(o *Options) { o.SubmitAddr = "[::1]:0" }, "", ""},
		{func(o *Options) { o.SubmitAddr = "localhost:0" }, "", ""},
		{func(o *Options) { o.SubmitAddr = "unix:/tmp/x" }, "", ""},
		{func(o *Options) { o.SubmitAddr = "unix:" }, "submit-addr", "no path"},
		{func(o *Options) { o.SubmitAddr = "unix:@x" }, "submit-addr", "abstract"},

		{func(o *Options) { o.SubmitAddr = ":9998" }, "submit-addr", "other hosts"},
		{func(o *Options) { o.WorkerAddr = "0.0.0.0:0" }, "worker-addr", "--token-file"},
		{func(o *Options) { o.HTTPAddr = "[::]:0" }, "http-addr", "--tls-client-ca"},
		{func(o *Options) { o.HTTPAddr = "example.org:0" }, "http-addr", "--insecure"},
		{func(o *Options) { o.SubmitAddr = ":0"; o.Insecure = true }, "", ""},
		{func(o *Options) { o.SubmitAddr = ":0"; o.TokenFile = "tokens" }, "", ""},
		{func(o *Options) { o.SubmitAddr = ":0"; o.TLSCert, o.TLSKey = cert, key }, "submit-addr", "other hosts"},
		{func(o *Options) { o.SubmitAddr = ":0"; o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert }, "", ""},
		{func(o *Options) {
			o.SubmitAddr = "tcp://:0"
			o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert
		}, "submit-addr", "other hosts"},
		{func(o *Options) {
			o.SubmitAddr = "tls://:0,127.0.0.1:0,unix:/tmp/x"
			o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert
		}, "", ""},
		{func(o *Options) {
			o.SubmitAddr = "tls://:0,:0" // beside a tls:// address, an address without a scheme has no TLS
			o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert
		}, "submit-addr", "other hosts"},
		{func(o *Options) { o.WorkerAddr = "tls://127.0.0.1:0" }, "worker-addr", "--tls-cert"},
		{func(o *Options) { o.HTTPAddr = "http://127.0.0.1:0" }, "", ""},
		{func(o *Options) { o.HTTPAddr = "http://[::1]:0/" }, "", ""},
		{func(o *Options) { o.HTTPAddr = "http://127.0.0.1:0/v1" }, "http-addr", "port"},
		{func(o *Options) { o.HTTPAddr = "http://example.org:0" }, "http-addr", "--insecure"},
		{func(o *Options) { o.HTTPAddr = "https://127.0.0.1:0" }, "http-addr", "--tls-cert"},
		{func(o *Options) { o.HTTPAddr = "https://127.0.0.1:0/"; o.TLSCert, o.TLSKey = cert, key }, "", ""},
		{func(o *Options) { o.SubmitAddr = "http://127.0.0.1:0" }, "submit-addr", "neither"},
		{func(o *Options) { o.WorkerAddr = "127.0.0.1:0," }, "worker-addr", "neither"},

		{func(o *Options) { o.TLSCert = cert }, "tls-cert", "--tls-key"},
		{func(o *Options) { o.TLSKey = key }, "tls-cert", "--tls-key"},
		{func(o *Options) { o.TLSClientCA = cert }, "tls-client-ca", "--tls-cert"},
		{func(o *Options) { o.TLSCert, o.TLSKey = other, key }, "tls-cert", "match"},
		{func(o *Options) { o.TLSCert, o.TLSKey = "/none", key }, "tls-cert", "no such file"},
	} {
		o := Default()
		c.set(&o)
		err := o.Validate()
		var oe *guard.OptionError
		switch {
		case c.flag == "":
			if err != nil {
				t.Errorf("%v, but it can be", err)
			}
		case !errors.As(err, &oe) || oe.Flag != c.flag || !strings.Contains(err.Error(), c.wantError):
			t.Errorf("%v, want --%s and %q", err, c.flag, c.wantError)
		}
	}
}

// TestAddressesThatOthersReach checks which addresses other hosts can reach without a token or
// certificate.
func TestAddressesThatOthersReach(t *testing.T) {
	for _, c := range []struct {
		set  func(o *Options)
		want bool
	}{
		{func(o *Options) {}, false},
		{func(o *Options) { o.HTTPAddr = "" }, false},
		{func(o *Options) { o.SubmitAddr = ":0" }, true},
		{func(o *Options) { o.HTTPAddr = "192.0.2.1:0" }, true},
		{func(o *Options) { o.WorkerAddr = "broker.example.org:0" }, true},
		{func(o *Options) { o.WorkerAddr = "127.9.9.9:0" }, false},
		{func(o *Options) { o.SubmitAddr = "unix:/tmp/x" }, false},
		{func(o *Options) { o.SubmitAddr = ":0"; o.TokenFile = "t" }, false},
		{func(o *Options) { o.SubmitAddr, o.TLSCert, o.TLSClientCA = ":0", "c", "c" }, false},
		{func(o *Options) { o.SubmitAddr = ":0"; o.TLSCert = "c" }, true},
		{func(o *Options) { o.SubmitAddr, o.TLSCert, o.TLSClientCA = "tcp://:0", "c", "c" }, true},
		{func(o *Options) { o.SubmitAddr, o.TLSCert, o.TLSClientCA = "tls://:0", "c", "c" }, false},
	} {
		o := Default()
		o.Insecure = true
		c.set(&o)
		if got := o.IsExposed(); got != c.want {
			t.Errorf("exposed: %v, want %v: %+v", got, c.want, o)
		}
	}
}

func TestEventLoopsFollowProcessors(t *testing.T) {
	for _, c := range []struct{ loops, processors, want int }{
		{0, 1, 1}, {0, 4, 1}, {0, 7, 1}, {0, 8, 2}, {0, 64, 16}, {0, 4096, 256}, {3, 64, 3}, {2, 1, 2},
	} {
		if got := (&Options{Loops: c.loops}).EventLoops(c.processors); got != c.want {
			t.Errorf("loops %d on %d processors are %d, want %d", c.loops, c.processors, got, c.want)
		}
	}
}
