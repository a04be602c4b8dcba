package brokers

import (
	"strings"
	"testing"
)

func TestKindsAreFoundByName(t *testing.T) {
	for _, k := range Kinds() {
		got, err := KindByName(k.Name)
		if err != nil || got.Title != k.Title {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
	if _, err := KindByName("rabbit"); err == nil || !strings.Contains(err.Error(), "gearmand-t1") {
		t.Errorf("error %v should list the kinds", err)
	}
}

func TestMissingServerIsNamed(t *testing.T) {
	missing := debianServer{program: "no-such-server", pkg: "no-such-package"}
	_, err := NewKind("rabbit", "Rabbit", missing.start).Start(t.Context(), Settings{})
	const want = "start rabbit: no-such-server is not installed: `make deps` installs it (package no-such-package)"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
