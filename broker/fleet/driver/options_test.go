package driver_test

import (
	"errors"
	"strings"
	"testing"

	"gloom/broker/fleet/driver"
	"gloom/broker/guard"
)

// TestOptionErrorNamesFlag: an error names the flag of an invalid value.
func TestOptionErrorNamesFlag(t *testing.T) {
	for _, v := range []struct {
		flag string // "" if all is well
		opt  driver.Options
	}{
		{"", driver.Options{}},
		{"", driver.Options{Servers: "nats://127.0.0.1:4222,nats://localhost:1"}},
		{"", driver.Options{Servers: "tls://nats.example.org:4222"}},
		{"", driver.Options{Servers: "nats://user:word@nats.example.org:4222"}},
		{"", driver.Options{Servers: "nats://nats.example.org:4222", Insecure: true}},
		{"fleet", driver.Options{Servers: "nats://nats.example.org:4222"}},
		{"fleet", driver.Options{Servers: "nats://127.0.0.1:4222,nats://10.0.0.1:4222"}},
		{"fleet", driver.Options{Servers: "127.0.0.1:4222"}},
		{"fleet", driver.Options{Servers: "http://127.0.0.1:4222"}},
		{"fleet", driver.Options{Servers: "nats://%zz"}},
		{"fleet", driver.Options{Servers: "nats://127.0.0.1:4222,"}},
		{"fleet-prefix", driver.Options{Servers: "nats://127.0.0.1:4222", Prefix: "a.*"}},
		{"fleet-prefix", driver.Options{Prefix: "a b"}},
		{"fleet-name", driver.Options{Name: "a"}},
		{"fleet-creds", driver.Options{Creds: "/nowhere"}},
		{"fleet-ca", driver.Options{CA: "ca.pem"}},
		{"fleet-cert", driver.Options{Cert: "cert.pem", Key: "key.pem"}},
		{"fleet-key", driver.Options{Key: "key.pem"}},
		{"fleet-name", driver.Options{Servers: "nats://127.0.0.1:4222", Name: string(make([]byte, 129))}},
		{"fleet", driver.Options{Servers: "nats://127.0.0.1:99999"}},
		{"fleet", driver.Options{Servers: "nats://127.0.0.1/x"}},
		{"fleet-prefix", driver.Options{Servers: "nats://127.0.0.1:4222", Prefix: strings.Repeat("x", 129)}},
		{"fleet-name", driver.Options{Servers: "nats://127.0.0.1:4222", Name: "a\nb"}},
		{"fleet-name", driver.Options{Servers: "nats://127.0.0.1:4222", Name: "\xff"}},
		{"fleet-ca", driver.Options{Servers: "nats://127.0.0.1:4222", CA: "/dev/null"}},
		{"fleet-creds", driver.Options{Servers: "nats://127.0.0.1:4222", Creds: "/dev/null"}},
		{"fleet-creds", driver.Options{Servers: "nats://127.0.0.1:4222", Creds: "/nowhere"}},
		{"fleet-ca", driver.Options{Servers: "nats://127.0.0.1:4222", CA: "/nowhere"}},
		{"fleet-cert", driver.Options{Servers: "nats://127.0.0.1:4222", Cert: "/dev/null"}},
		{"fleet-cert", driver.Options{Servers: "nats://127.0.0.1:4222", Cert: "/dev/null", Key: "/dev/null"}},
	} {
		if v.opt.Prefix == "" {
			v.opt.Prefix = "gloom"
		}
		err := v.opt.Validate()
		var option *guard.OptionError
		if v.flag == "" && err != nil || v.flag != "" && (!errors.As(err, &option) || option.Flag != v.flag) {
			t.Errorf("%+v: %v, want the flag %q", v.opt, err, v.flag)
		}
	}
}
