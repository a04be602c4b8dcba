package web

import (
	"net/url"
	"testing"
	"time"
)

func TestDueFromQuery(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		query string
		want  time.Time // zero: at once
		code  string
	}{
		{"", time.Time{}, ""},
		{"delay=0", time.Time{}, ""},
		{"delay=250ms", now.Add(250 * time.Millisecond), ""},
		{"delay=90", now.Add(90 * time.Millisecond), ""},
		{"delay=14d", now.Add(14 * 24 * time.Hour), ""},
		{"delay=3650d", now.Add(3650 * 24 * time.Hour), ""},
		{"delay=4000d", time.Time{}, "invalid_value"},
		{"delay=999999999999d", time.Time{}, "invalid_value"},
		{"delay=106751d", time.Time{}, "invalid_value"},
		{"delay=-1s", time.Time{}, "invalid_value"},
		{"delay=1.5s", time.Time{}, "invalid_value"},
		{"delay=", time.Time{}, "invalid_value"},
		{"dt=2026-03-01T13:00:00Z", now.Add(time.Hour), ""},
		{"dt=2026-03-01T13:00:00.250Z", now.Add(time.Hour + 250*time.Millisecond), ""},
		{"dt=2026-03-01T15:00:00%2B02:00", now.Add(time.Hour), ""},
		{"dt=2026-03-01T13:00:00", now.Add(time.Hour), ""},
		{"dt=2026-03-02", now.Add(12 * time.Hour), ""},
		{"dt=1772370000000", time.UnixMilli(1772370000000), ""},
		{"dt=2026-03-01T11:00:00Z", time.Time{}, ""},
		{"dt=-5", time.Time{}, ""},
		{"dt=2036-03-02", time.Time{}, "invalid_value"},
		{"dt=99999999999999999999", time.Time{}, "invalid_value"},
		{"dt=soon", time.Time{}, "invalid_value"},
		{"dt=2026-03-01&delay=1s", time.Time{}, "invalid_value"},
	} {
		t.Run(c.query, func(t *testing.T) {
			q, err := url.ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			r := request{query: q}
			got, err := r.due(now)
			if c.code != "" {
				if err == nil || errorOf(err).Code != c.code {
					t.Errorf("got %v, %v, want %s", got, err, c.code)
				}
				return
			}
			if err != nil || !got.Equal(c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
}
