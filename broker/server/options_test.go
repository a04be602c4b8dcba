package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gloom/broker/guard"
	"gloom/broker/settings"
)

func TestValidate(t *testing.T) {
	cert, key := certificate(t)
	other, _ := certificate(t)
	if o := settings.Default(); o.Validate() != nil {
		t.Fatalf("the defaults: %v", o.Validate())
	}
	for _, c := range []struct {
		set  func(o *settings.Options)
		flag string // "" when it can be
		says string
	}{
		{func(o *settings.Options) { o.MaxFrame = 1 << 10; o.MaxInbound = 1 << 10 }, "", ""},
		{func(o *settings.Options) { o.MaxFrame = 1<<10 - 1 }, "max-frame", "from 1024 to 1073741824"},
		{func(o *settings.Options) { o.MaxFrame = 1 << 30; o.MaxInbound = 1<<30 - 1 }, "max-inbound", "at least max-frame, 1073741824"},
		{func(o *settings.Options) { o.MaxJobs = -1 }, "max-jobs", "-1"},
		{func(o *settings.Options) { o.MaxTypes = 0 }, "max-types", "from 1"},
		{func(o *settings.Options) { o.MaxPrefetch = 0 }, "max-prefetch", "from 1"},
		{func(o *settings.Options) { o.Retries = 1001 }, "retries", "from 0 to 1000"},
		{func(o *settings.Options) { o.DrainTimeout = -time.Second }, "drain-timeout", "-1s"},
		{func(o *settings.Options) { o.DefaultType = strings.Repeat("x", 1025) }, "default-type", "1025 bytes"},
		{func(o *settings.Options) { o.DefaultType = "" }, "", ""},

		{func(o *settings.Options) { o.SubmitAddr = "" }, "submit-addr", "neither host:port nor unix:/path"},
		{func(o *settings.Options) { o.HTTPAddr = "" }, "", ""},
		{func(o *settings.Options) { o.SubmitAddr = "9998" }, "submit-addr", "neither"},
		{func(o *settings.Options) { o.WorkerAddr = "127.0.0.1:" }, "worker-addr", "port"},
		{func(o *settings.Options) { o.WorkerAddr = "127.0.0.1:65536" }, "worker-addr", "port"},
		{func(o *settings.Options) { o.WorkerAddr = "127.0.0.1:-1" }, "worker-addr", "port"},
		{func(o *settings.Options) { o.SubmitAddr = "[::1]:0" }, "", ""},
		{func(o *settings.Options) { o.SubmitAddr = "localhost:0" }, "", ""},
		{func(o *settings.Options) { o.SubmitAddr = "unix:/tmp/x" }, "", ""},
		{func(o *settings.Options) { o.SubmitAddr = "unix:" }, "submit-addr", "no path"},
		{func(o *settings.Options) { o.SubmitAddr = "unix:@x" }, "submit-addr", "abstract"},

		{func(o *settings.Options) { o.SubmitAddr = ":9998" }, "submit-addr", "other hosts"},
		{func(o *settings.Options) { o.WorkerAddr = "0.0.0.0:0" }, "worker-addr", "--token-file"},
		{func(o *settings.Options) { o.HTTPAddr = "[::]:0" }, "http-addr", "--tls-client-ca"},
		{func(o *settings.Options) { o.HTTPAddr = "example.org:0" }, "http-addr", "--insecure"},
		{func(o *settings.Options) { o.SubmitAddr = ":0"; o.Insecure = true }, "", ""},
		{func(o *settings.Options) { o.SubmitAddr = ":0"; o.TokenFile = "tokens" }, "", ""},
		{func(o *settings.Options) { o.SubmitAddr = ":0"; o.TLSCert, o.TLSKey = cert, key }, "submit-addr", "other hosts"},
		{func(o *settings.Options) { o.SubmitAddr = ":0"; o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert }, "", ""},
		{func(o *settings.Options) {
			o.SubmitAddr = "tcp://:0"
			o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert
		}, "submit-addr", "other hosts"},
		{func(o *settings.Options) {
			o.SubmitAddr = "tls://:0,127.0.0.1:0,unix:/tmp/x"
			o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert
		}, "", ""},
		{func(o *settings.Options) {
			o.SubmitAddr = "tls://:0,:0" // the second one has no TLS, as it is written
			o.TLSCert, o.TLSKey, o.TLSClientCA = cert, key, cert
		}, "submit-addr", "other hosts"},
		{func(o *settings.Options) { o.WorkerAddr = "tls://127.0.0.1:0" }, "worker-addr", "--tls-cert"},
		{func(o *settings.Options) { o.WorkerAddr = "127.0.0.1:0," }, "worker-addr", "neither"},

		{func(o *settings.Options) { o.TLSCert = cert }, "tls-cert", "--tls-key"},
		{func(o *settings.Options) { o.TLSKey = key }, "tls-cert", "--tls-key"},
		{func(o *settings.Options) { o.TLSClientCA = cert }, "tls-client-ca", "--tls-cert"},
		{func(o *settings.Options) { o.TLSCert, o.TLSKey = other, key }, "tls-cert", "match"},
		{func(o *settings.Options) { o.TLSCert, o.TLSKey = "/none", key }, "tls-cert", "no such file"},
	} {
		o := settings.Default()
		c.set(&o)
		err := o.Validate()
		var oe *guard.OptionError
		switch {
		case c.flag == "":
			if err != nil {
				t.Errorf("%v, but it can be", err)
			}
		case !errors.As(err, &oe) || oe.Flag != c.flag || !strings.Contains(err.Error(), c.says):
			t.Errorf("%v, want --%s and %q", err, c.flag, c.says)
		}
	}
}

// TestExposed: who reaches the broker from other hosts without showing anything.
func TestExposed(t *testing.T) {
	for _, c := range []struct {
		set  func(o *settings.Options)
		want bool
	}{
		{func(o *settings.Options) {}, false},
		{func(o *settings.Options) { o.HTTPAddr = "" }, false},
		{func(o *settings.Options) { o.SubmitAddr = ":0" }, true},
		{func(o *settings.Options) { o.HTTPAddr = "192.0.2.1:0" }, true},
		{func(o *settings.Options) { o.WorkerAddr = "broker.example.org:0" }, true},
		{func(o *settings.Options) { o.WorkerAddr = "127.9.9.9:0" }, false},
		{func(o *settings.Options) { o.SubmitAddr = "unix:/tmp/x" }, false},
		{func(o *settings.Options) { o.SubmitAddr = ":0"; o.TokenFile = "t" }, false},
		{func(o *settings.Options) { o.SubmitAddr, o.TLSCert, o.TLSClientCA = ":0", "c", "c" }, false},
		{func(o *settings.Options) { o.SubmitAddr = ":0"; o.TLSCert = "c" }, true},
		{func(o *settings.Options) { o.SubmitAddr, o.TLSCert, o.TLSClientCA = "tcp://:0", "c", "c" }, true},
		{func(o *settings.Options) { o.SubmitAddr, o.TLSCert, o.TLSClientCA = "tls://:0", "c", "c" }, false},
	} {
		o := settings.Default()
		o.Insecure = true
		c.set(&o)
		if got := o.Exposed(); got != c.want {
			t.Errorf("exposed: %v, want %v: %+v", got, c.want, o)
		}
	}
}
