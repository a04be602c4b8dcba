package deploy

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command runs something and returns what it prints.
func command(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPackage: make deb packs every program with its manual, and what is in it
// says the version that it was built with.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	command(t, []string{"DPKG_DEB_COMPRESSOR_TYPE=gzip", "DPKG_DEB_COMPRESSOR_LEVEL=1"}, "make", "-C", "../../..", "deb", "BIN="+dir, "VERSION=v1.2.3")
	arch := strings.TrimSpace(command(t, nil, "dpkg", "--print-architecture"))
	deb := filepath.Join(dir, "gloom_1.2.3_"+arch+".deb")
	command(t, nil, "dpkg-deb", "-x", deb, dir+"/root")
	for _, p := range []string{"gloomd", "gloom", "gloom-bench", "jobd", "jobd-master", "jobctl", "jq-master", "serverlessd"} {
		for _, path := range []string{"usr/bin/" + p, "usr/share/man/man1/" + p + ".1.gz", "usr/share/bash-completion/completions/" + p} {
			if info, err := os.Stat(filepath.Join(dir, "root", path)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", path, err)
			}
		}
		if out := command(t, nil, filepath.Join(dir, "root/usr/bin", p), "--version"); !strings.Contains(out, "v1.2.3") {
			t.Errorf("%s --version: %s", p, out)
		}
	}
	if out := command(t, nil, "dpkg-deb", "-I", deb); !strings.Contains(out, "postinst") {
		t.Errorf("the package has no postinst:\n%s", out)
	}
}

// TestUpgrade: a service that its operator has disabled stays disabled.
func TestUpgrade(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"lib/systemd/system", "etc", "var/lib"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	unit, err := os.ReadFile("systemd/gloomd.service")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "lib/systemd/system/gloomd.service"), unit, 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"DPKG_ROOT=" + root, "DPKG_MAINTSCRIPT_PACKAGE=gloom"}
	enabled := func() bool {
		_, err := os.Lstat(filepath.Join(root, "etc/systemd/system/multi-user.target.wants/gloomd.service"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	for _, step := range []struct {
		what string
		args []string
		want bool
	}{
		{"installed", []string{"sh", "debian/postinst", "configure", ""}, true},
		{"upgraded", []string{"sh", "debian/postinst", "configure", "1.0"}, true},
		{"disabled", []string{"deb-systemd-helper", "disable", "gloomd.service"}, false},
		{"upgraded again", []string{"sh", "debian/postinst", "configure", "1.1"}, false},
		{"purged", []string{"sh", "debian/postrm", "purge"}, false},
		{"installed anew", []string{"sh", "debian/postinst", "configure", ""}, true},
	} {
		command(t, env, step.args[0], step.args[1:]...)
		if enabled() != step.want {
			t.Errorf("%s: enabled is %v, want %v", step.what, !step.want, step.want)
		}
	}
}
