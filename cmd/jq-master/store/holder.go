package store

import (
	"fmt"
	"strconv"
	"strings"
)

func (p process) String() string {
	return fmt.Sprintf("%s %s %s %d %s", p.host, p.boot, p.space, p.pid, p.start)
}

// holder is the process that a lease names.
func holder(lease string) (p process, ok bool) {
	f := strings.Fields(lease)
	if len(f) != 9 {
		return p, false
	}
	pid, err := strconv.Atoi(f[7])
	return process{f[4], f[5], f[6], pid, f[8]}, err == nil
}
