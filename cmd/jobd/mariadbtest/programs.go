package mariadbtest

import (
	"errors"
	"os/exec"
	"path/filepath"
	"sync"
)

// binaries are the server and the program that makes its data directory.
type binaries struct{ server, install string }

// programs finds them.
var programs = sync.OnceValues(func() (binaries, error) {
	b := binaries{lookup("mariadbd", "mysqld"), lookup("mariadb-install-db", "mysql_install_db")}
	if b.server == "" || b.install == "" {
		return b, errors.New("no MariaDB server found, which this needs: apt-get install mariadb-server")
	}
	return b, nil
})

// lookup finds the first of the names. Debian keeps daemons out of an ordinary
// user's PATH.
func lookup(names ...string) string {
	for _, name := range names {
		for _, place := range []string{"", "/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/bin"} {
			if path, err := exec.LookPath(filepath.Join(place, name)); err == nil {
				return path
			}
		}
	}
	return ""
}
