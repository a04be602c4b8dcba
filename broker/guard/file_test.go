package guard_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gloom/broker/guard"
)

func TestReadFileRefusesMoreThanItsLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("host = a\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := guard.ReadFile(path); err != nil || string(data) != "host = a\n" {
		t.Fatalf("got %q, %v", data, err)
	}
	if err := os.Truncate(path, guard.MaxFileBytes); err != nil {
		t.Fatal(err)
	}
	if data, err := guard.ReadFile(path); err != nil || len(data) != guard.MaxFileBytes {
		t.Fatalf("got %d bytes, %v", len(data), err)
	}
	if err := os.Truncate(path, guard.MaxFileBytes+5); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		path:        "read " + path + ": the file has 16777221 bytes; the limit is 16777216",
		"/dev/zero": "read /dev/zero: the file has more than 16777216 bytes; the limit is 16777216",
	} {
		_, err := guard.ReadFile(path)
		var at *fs.PathError
		if !errors.As(err, &at) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := guard.LoadKeyPair("/dev/zero", path); err == nil || !strings.Contains(err.Error(), "/dev/zero: the file has") {
		t.Errorf("a certificate without an end: %v", err)
	}
}
