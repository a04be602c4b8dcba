package rate

import "testing"

// TestRates: a rate is written in the unit that a person would choose.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		perSecond float64
		flag      string
	}{
		{1e9, "1000000000/s"}, {100, "100/s"}, {2.5, "2.5/s"}, {1, "1/s"}, {0.5, "30/m"}, {100. / 60, "100/m"}, {1. / 60, "1/m"}, {0.0166, "59.76/h"},
		{7. / 60, "7/m"}, {5. / 3600, "5/h"}, {1. / 3600, "1/h"}, {0.1 / 3600, "0.1/h"}, {10. / 3, "200/m"}, {1.23456789, "1.23457/s"}, {1e-9, "0.0000036/h"},
		{1234567, "1234567/s"}, {123456.25, "123456.25/s"}, {0.0166667, "1/m"}, {12345.678901, "12345.678901/s"},
	} {
		if got := Flag(c.perSecond); got != c.flag {
			t.Errorf("%g is %s, want %s", c.perSecond, got, c.flag)
		}
	}
	for rate, want := range map[float64]string{4: "4 jobs a second", 1. / 60: "1 job a minute", 5. / 3600: "5 jobs an hour"} {
		if got := Text(rate); got != want {
			t.Errorf("%g is %q, want %q", rate, got, want)
		}
	}
}
