package deploy

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// runCommand runs a command and returns its output.
func runCommand(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	throwaway.TrackSources()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// buildPrograms builds broker and tool in a directory.
func buildPrograms(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"gloomd", "gloom"} {
		if _, err := throwaway.Build(dir, name, false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPackageHasEveryProgram: make deb packs every program with its manual, the programs report the
// version of the build, and systemd understands the units.
func TestPackageHasEveryProgram(t *testing.T) {
	dir := t.TempDir()
	runCommand(t, []string{"DPKG_DEB_COMPRESSOR_TYPE=gzip", "DPKG_DEB_COMPRESSOR_LEVEL=1"}, "make", "-C", "../../..", "deb", "BIN="+dir, "VERSION=v1.2.3")
	arch := strings.TrimSpace(runCommand(t, nil, "dpkg", "--print-architecture"))
	deb := filepath.Join(dir, "gloom_1.2.3_"+arch+".deb")
	runCommand(t, nil, "dpkg-deb", "-x", deb, dir+"/root")
	for _, p := range []string{"gloomd", "gloom", "gloom-bench", "jobd", "jobd-master", "jobctl", "jq-master", "serverlessd"} {
		for _, path := range []string{"usr/bin/" + p, "usr/share/man/man1/" + p + ".1.gz", "usr/share/bash-completion/completions/" + p} {
			if info, err := os.Stat(filepath.Join(dir, "root", path)); err != nil || info.Size() == 0 {
				t.Errorf("%s: %v", path, err)
			}
		}
		if out := runCommand(t, nil, filepath.Join(dir, "root/usr/bin", p), "--version"); !strings.Contains(out, "v1.2.3") {
			t.Errorf("%s --version: %s", p, out)
		}
	}
	units, err := filepath.Glob(filepath.Join(dir, "root/lib/systemd/system/*.service"))
	if err != nil || len(units) != 5 {
		t.Errorf("units %v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err == nil {
			err = os.WriteFile(unit, bytes.ReplaceAll(text, []byte("=/usr/bin/"), []byte("="+dir+"/root/usr/bin/")), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		out := runCommand(t, nil, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
		if strings.Contains(out, filepath.Base(unit)) { // other lines are about units of this machine
			t.Errorf("%s", out)
		}
	}
	for _, path := range []string{"usr/lib/sysusers.d/jobd.conf", "usr/share/doc/gloom/examples/jobd.conf", "usr/share/doc/gloom/examples/jobd-master.conf"} {
		if _, err := os.Stat(filepath.Join(dir, "root", path)); err != nil {
			t.Error(err)
		}
	}
	// Installed elsewhere, each unit starts the program that was installed with it.
	runCommand(t, nil, "make", "-C", "../../..", "install", "BIN="+dir, "VERSION=v1.2.3", "DESTDIR="+dir+"/other", "PREFIX=/opt/gloom")
	units, err = filepath.Glob(dir + "/other/opt/gloom/lib/systemd/system/*.service")
	if err != nil || len(units) != 5 {
		t.Errorf("units %v, %v", units, err)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		_, command, _ := strings.Cut(string(text), "ExecStart=")
		program := strings.Fields(command)[0]
		if _, err := os.Stat(dir + "/other" + program); err != nil || !strings.HasPrefix(program, "/opt/gloom/bin/") {
			t.Errorf("%s starts %s: %v", unit, program, err)
		}
	}
	if out := runCommand(t, nil, "dpkg-deb", "-I", deb); !strings.Contains(out, "postinst") {
		t.Errorf("the package has no postinst:\n%s", out)
	}
	// Sources that are newer than the programs are built before they are installed.
	if err := os.Chtimes(dir+"/gloomd", time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if out := runCommand(t, nil, "make", "-n", "-C", "../../..", "install", "BIN="+dir); !strings.Contains(out, "go build") {
		t.Errorf("make install takes programs that are older than the sources:\n%s", out)
	}
}

// TestUpgradeKeepsEnabledServices: the package enables the broker's service; the operator enables
// the other services. An upgrade does not change what the operator has enabled or disabled.
func TestUpgradeKeepsEnabledServices(t *testing.T) {
	install := func(version string) []string { return []string{"sh", "debian/postinst", "configure", version} }
	units := map[string]string{
		"gloomd.service": "systemd", "jq-master.service": "../../jq-master/deploy", "jobd.service": "../../jobd/systemd", "jobd-master.service": "../../jobd/systemd", "serverlessd.service": "../../serverlessd/deploy",
	}
	for unit := range units {
		t.Run(unit, func(t *testing.T) {
			root := t.TempDir()
			for _, dir := range []string{"lib/systemd/system", "etc", "var/lib"} {
				if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, from := range units {
				text, err := os.ReadFile(filepath.Join(from, name))
				if err == nil {
					err = os.WriteFile(filepath.Join(root, "lib/systemd/system", name), text, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			env := []string{"DPKG_ROOT=" + root, "DPKG_MAINTSCRIPT_PACKAGE=gloom"}
			enabled := func() bool {
				_, err := os.Lstat(filepath.Join(root, "etc/systemd/system/multi-user.target.wants", unit))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				return err == nil
			}
			first := unit == "gloomd.service"
			for _, step := range []struct {
				name string
				args []string
				want bool
			}{
				{"installed", install(""), first},
				{"upgraded", install("1.0"), first},
				{"enabled", []string{"deb-systemd-helper", "enable", unit}, true},
				{"upgraded while enabled", install("1.1"), true},
				{"disabled", []string{"deb-systemd-helper", "disable", unit}, false},
				{"upgraded while disabled", install("1.2"), false},
				{"enabled again", []string{"deb-systemd-helper", "enable", unit}, true},
				{"purged", []string{"sh", "debian/postrm", "purge"}, false},
				{"installed anew", install(""), first},
			} {
				runCommand(t, env, step.args[0], step.args[1:]...)
				if enabled() != step.want {
					t.Errorf("%s: enabled is %v, want %v", step.name, !step.want, step.want)
				}
			}
		})
	}
}
