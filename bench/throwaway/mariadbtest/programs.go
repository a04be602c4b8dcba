package mariadbtest

import (
	"errors"
	"sync"

	"gloom/bench/throwaway"
)

// binaries holds the server and the program that makes its data directory.
type binaries struct{ server, install string }

// programs finds them.
var programs = sync.OnceValues(func() (binaries, error) {
	b := binaries{throwaway.Lookup("mariadbd", "mysqld"), throwaway.Lookup("mariadb-install-db", "mysql_install_db")}
	if b.server == "" || b.install == "" {
		return b, errors.New("no MariaDB server found: apt-get install mariadb-server")
	}
	return b, nil
})
