package store

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"gloom/cmd/internal/process"
)

// holder identifies the process that has the lease, and its host.
type holder struct {
	host string
	process.Process
}

// self returns the holder for this process.
func self() holder {
	name, _ := os.Hostname()
	return holder{cmp.Or(strings.Join(strings.Fields(name), "-"), unknown), process.Self()}
}

// unknown stands for a part that is not known.
const unknown = "unknown"

func (h holder) String() string {
	return fmt.Sprintf("%s %s %s %d %s", h.host, cmp.Or(h.Boot, unknown), cmp.Or(h.PIDNamespace, unknown), h.PID, cmp.Or(h.Start, unknown))
}

// holderOf parses the holder in the text of a lease.
func holderOf(lease string) (h holder, ok bool) {
	f := strings.Fields(lease)
	if len(f) != 9 {
		return h, false
	}
	pid, err := strconv.Atoi(f[7])
	return holder{f[4], process.Process{Boot: f[5], PIDNamespace: f[6], PID: pid, Start: f[8]}}, err == nil
}

// gone reports whether this process can see that the holder has ended. It is false for processes of
// other hosts.
func (h holder) gone() bool { return h.host == self().host && h.Gone() }
