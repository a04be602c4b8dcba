package mariadbtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

var servers = []string{"mariadbd", "mysqld"}
var installers = []string{"mariadb-install-db", "mysql_install_db"}

// Debian keeps daemons out of an ordinary user's PATH.
var places = []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/bin"}

// binaries are the server and the program that makes its data directory.
type binaries struct{ server, install string }

// programs finds them, and installs the system's package when they are missing
// and we may.
var programs = sync.OnceValues(func() (binaries, error) {
	const hint = "tests need MariaDB: apt-get install mariadb-server"
	if found, ok := find(); ok {
		return found, nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Getuid() != 0 {
		return binaries{}, fmt.Errorf("no %s found; %s", servers[0], hint)
	}
	// Several test binaries may get here together; apt's lock lines them up.
	for _, args := range [][]string{
		{"-o", "DPkg::Lock::Timeout=300", "-q", "update"},
		{"-o", "DPkg::Lock::Timeout=300", "-q", "-y", "--no-install-recommends", "install", "mariadb-server"},
	} {
		cmd := exec.Command(apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
		if out, err := cmd.CombinedOutput(); err != nil && args[len(args)-1] != "update" {
			return binaries{}, fmt.Errorf("%s; installing it failed: %w: %s", hint, err, tail(out))
		}
	}
	found, ok := find()
	if !ok {
		return binaries{}, fmt.Errorf("no %s found after installing; %s", servers[0], hint)
	}
	return found, nil
})

func find() (binaries, bool) {
	b := binaries{server: lookup(servers), install: lookup(installers)}
	return b, b.server != "" && b.install != ""
}

func lookup(names []string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
		for _, place := range places {
			path := filepath.Join(place, name)
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}
