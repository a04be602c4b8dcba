package job

import (
	"strings"
	"testing"
	"time"
)

func TestNamesOfClientsAndTypes(t *testing.T) {
	for _, c := range []struct {
		name        string
		client, typ bool
	}{
		{"acme", true, true},
		{"_a.b", true, false},
		{"0", true, true},
		{"a-b", false, true},
		{"resize.v2", true, true},
		{"a:@+-_.", false, true},
		{".a", false, false},
		{"-a", false, false},
		{"", false, false},
		{"a,b", false, false},
		{"a|b", false, false},
		{"a\n", false, false},
		{"é", false, false},
		{strings.Repeat("a", 64), true, true},
		{strings.Repeat("a", 65), false, true},
		{strings.Repeat("a", 128), false, true},
		{strings.Repeat("a", 129), false, false},
	} {
		if err := CheckClient(c.name); (err == nil) != c.client {
			t.Errorf("client %q: %v", c.name, err)
		}
		if err := CheckType(c.name); (err == nil) != c.typ {
			t.Errorf("type %q: %v", c.name, err)
		}
	}
	if client, typ, ok := SplitJobtype(Jobtype("a", "b-c")); !ok || client != "a" || typ != "b-c" {
		t.Errorf("a-b-c is client %q, type %q", client, typ)
	}
}

func TestDurationsAreParsedAndPrinted(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "250": 250 * time.Millisecond, "250ms": 250 * time.Millisecond, "30s": 30 * time.Second,
		"5m": 5 * time.Minute, "6h": 6 * time.Hour, "14d": 14 * 24 * time.Hour,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%q is %v, %v", text, got, err)
		}
		if got, err := ParseDuration(Duration(want).String()); err != nil || got != want {
			t.Errorf("%v is written %q and read %v, %v", want, Duration(want), got, err)
		}
	}
	for _, text := range []string{"", "s", "-1s", "1.5s", "1w", "1 s", "99999999999999999999", "9223372036854775807d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestCodeOf(t *testing.T) {
	for status, want := range map[int]struct {
		code       string
		keptStatus int
	}{
		100: {CodeRetry, 100}, 200: {CodeOK, 200}, 299: {CodeOK, 299}, 400: {CodeFailed, 400}, 499: {CodeFailed, 499}, 500: {CodeError, 500}, 599: {CodeError, 599},
		301: {CodeError, 500}, 0: {CodeError, 500}, -1: {CodeError, 500}, 99: {CodeError, 500}, 600: {CodeError, 500},
	} {
		if code, keptStatus := CodeOf(status); code != want.code || keptStatus != want.keptStatus {
			t.Errorf("%d is %s, %d, want %s, %d", status, code, keptStatus, want.code, want.keptStatus)
		}
	}
}
