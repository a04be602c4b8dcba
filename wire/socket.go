package wire

import (
	"os"
	"path/filepath"
)

// Socket returns the path of the unix socket that a broker opens for the port by default,
// and that clients on its host try if they are given no address: in
// $XDG_RUNTIME_DIR/gloom, or in /run/gloom for root or without that variable.
func (p Port) Socket() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if os.Geteuid() == 0 || !filepath.IsAbs(dir) {
		dir = "/run"
	}
	name := "submit.sock"
	if p == WorkerPort {
		name = "worker.sock"
	}
	return filepath.Join(dir, "gloom", name)
}
