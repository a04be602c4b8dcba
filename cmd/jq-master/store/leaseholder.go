package store

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"

	"gloom/cmd/internal/process"
)

// leaseHolder identifies the process that has the lease, and its host.
type leaseHolder struct {
	host string
	process.Process
}

// selfHolder returns the holder for this process.
func selfHolder() leaseHolder {
	name, _ := os.Hostname()
	return leaseHolder{cmp.Or(strings.Join(strings.Fields(name), "-"), unknownPart), process.Self()}
}

// unknownPart stands for a part of a leaseHolder that is not known.
const unknownPart = "unknown"

func (h leaseHolder) String() string {
	return fmt.Sprintf("%s %s %s %d %s", h.host, cmp.Or(h.Boot, unknownPart), cmp.Or(h.PIDNamespace, unknownPart), h.PID, cmp.Or(h.Start, unknownPart))
}

// holderOf parses the holder in the text of a lease.
func holderOf(lease string) (h leaseHolder, ok bool) {
	f := strings.Fields(lease)
	if len(f) != 9 {
		return h, false
	}
	pid, err := strconv.Atoi(f[7])
	return leaseHolder{f[4], process.Process{Boot: f[5], PIDNamespace: f[6], PID: pid, Start: f[8]}}, err == nil
}

// hasEnded reports whether this process can see that the holder has ended. It is false for
// processes of other hosts.
func (h leaseHolder) hasEnded() bool { return h.host == selfHolder().host && h.IsGone() }
