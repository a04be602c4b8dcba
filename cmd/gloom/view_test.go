package main

import (
	"math"
	"testing"

	"gloom/broker/admin/api"
)

func TestP99OfHistogram(t *testing.T) {
	bucket := func(i int, n uint64) []uint64 {
		b := make([]uint64, 33)
		b[i] = n
		return b
	}
	sum := func(a, b []uint64) []uint64 {
		c := make([]uint64, len(a))
		for i := range a {
			c[i] = a[i] + b[i]
		}
		return c
	}
	for name, c := range map[string]struct {
		before, now []uint64
		total       uint64
		us          float64 // NaN: none
		oldest      float64 // seen, in µs
	}{
		"nothing at all":            {nil, nil, 0, math.NaN(), 0},
		"nothing since":             {bucket(5, 9), bucket(5, 9), 0, math.NaN(), 0},
		"all in one bucket":         {nil, bucket(11, 100), 100, 1024 + 1024*0.99, 0},
		"below a microsecond":       {nil, bucket(0, 100), 100, 0.99, 0},
		"what was before is out":    {bucket(30, 1000), sum(bucket(30, 1000), bucket(3, 100)), 100, 4 + 4*0.99, 0},
		"one slow in a thousand":    {nil, sum(bucket(3, 999), bucket(30, 1)), 1000, 4 + 4*990.0/999, 0},
		"two slow in a hundred":     {nil, sum(bucket(3, 98), bucket(11, 2)), 100, 1024 + 1024*0.5, 0},
		"the broker began anew":     {bucket(3, 50), bucket(3, 10), 10, 4 + 4*0.99, 0},
		"the last bucket is a time": {nil, bucket(32, 1), 1, (1 << 31) * 1.99, 0},
		"not above the oldest seen": {nil, bucket(11, 100), 100, 1024 + 176*0.99, 1200},
		"the oldest came later":     {nil, bucket(11, 100), 100, 1024 + 1024*0.99, 1000},
		"the oldest is low in line": {nil, bucket(11, 100), 100, 1024 + 1024*0.99, 1e6},
	} {
		total, s := estimateP99(c.before, c.now, c.oldest/1e6)
		got := math.NaN()
		if s != nil {
			got = *s * 1e6
		}
		if total != c.total || math.IsNaN(got) != math.IsNaN(c.us) || math.Abs(got-c.us) > c.us*1e-9 {
			t.Errorf("%s: got %d, %v µs, want %d, %v µs", name, total, got, c.total, c.us)
		}
	}
}

func TestCompareComputesRates(t *testing.T) {
	at := func(sec int, types ...api.Type) *sample {
		s := &sample{types: types}
		s.at = s.at.AddDate(1, 0, 0)
		for range sec {
			s.at = s.at.Add(1e9)
		}
		return s
	}
	typ := func(name string, submitted, answered, failed uint64) api.Type {
		return api.Type{Type: name, Ledger: api.Ledger{Submitted: submitted, Answered: answered, Failed: failed}}
	}
	v := computeView(
		at(0, typ("steady", 100, 50, 10), typ("reborn", 1000, 900, 0), typ("gone", 1, 1, 0)),
		at(2, typ("steady", 120, 55, 11), typ("reborn", 8, 4, 0), typ("new", 6, 2, 2)),
	)
	want := map[string][2]float64{"steady": {10, 3}, "reborn": {4, 2}, "new": {3, 2}}
	if v.Interval != 2 || len(v.Types) != len(want) {
		t.Fatalf("got %+v", v)
	}
	for _, r := range v.Types {
		if got := [2]float64{valueOrUnknown(r.In), valueOrUnknown(r.Out)}; got != want[r.Type] {
			t.Errorf("%s: in and out per second %v, want %v", r.Type, got, want[r.Type])
		}
	}
	v.sort("in", true)
	for i, name := range []string{"steady", "reborn", "new"} {
		if v.Types[i].Type != name {
			t.Errorf("place %d by in: %s, want %s", i, v.Types[i].Type, name)
		}
	}
}

func TestFormatNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{formatSpan(0), "0s"},
		{formatSpan(12e-6), "12µs"},
		{formatSpan(0.0123), "12ms"},
		{formatSpan(1.25), "1.2s"},
		{formatSpan(59.4), "59s"},
		{formatSpan(140), "2m20s"},
		{formatSpan(3 * 3600), "3h00m"},
		{formatSpan(50 * 3600), "2d02h"},
		{formatShortSpan(999e-6), "999µs"},
		{formatShortSpan(0.00123), "1.2ms"},
		{formatShortSpan(0.0999), "100ms"},
		{formatShortSpan(9.94), "9.9s"},
		{formatShortSpan(66), "1m06s"},
		{formatShortRate(0), "0"},
		{formatShortRate(0.04), "0.0"},
		{formatShortRate(9.94), "9.9"},
		{formatShortRate(9.96), "10"},
		{formatShortRate(1234567), "1.2M"},
		{formatCount(999_999), "999999"},
		{formatCount(99_949_999), "99.9M"},
		{formatCount(100_000_000), "100M"},
		{formatCount(12_345_678_901), "12G"},
		{limitText(ruleLimits(api.Limits{})), ""},
		{limitText(ruleLimits(api.Limits{Concurrency: 2, Rate: 0.5})), "at most 2 at a time, 30/m"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestHeadlineDistinguishesClients: clients with the same name are distinguished.
func TestHeadlineDistinguishesClients(t *testing.T) {
	for want, x := range map[string]api.Finding{
		"WARNING  client etl at 127.0.0.1:4711: it hangs": {Kind: "client", Subject: "etl", Number: 7, Address: "127.0.0.1:4711"},
		"WARNING  client etl at unix #7: it hangs":        {Kind: "client", Subject: "etl", Number: 7, Address: "unix"},
		"WARNING  client 127.0.0.1:4711: it hangs":        {Kind: "client", Subject: "127.0.0.1:4711", Number: 7, Address: "127.0.0.1:4711"},
		"WARNING  type mail: it hangs":                    {Kind: "type", Subject: "mail"},
		"WARNING  broker: it hangs":                       {Kind: "broker", Subject: "broker"},
	} {
		x.Severity, x.Finding = api.Warning, "it hangs"
		if got := headline(&x); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
