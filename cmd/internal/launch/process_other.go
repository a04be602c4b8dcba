//go:build unix && !linux

package launch

import (
	"context"
	"errors"
	"syscall"
	"time"
)

// Other systems cannot end a process together with this program, and cannot find its
// descendants.

func sysProcAttr(c Command) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Credential: c.User}
}

// KeepDescriptors does nothing.
func KeepDescriptors() {}

func setLimits(int, []Limit) {}

func leaveGroup(*syscall.SysProcAttr) bool { return false }

// waitEnd reaps the process at once: a signal that is sent to the group afterwards may miss its
// target.
func (p *Process) waitEnd() {
	state, err := p.process.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.result.Err, p.isReaped = state, err, true
}

func pipeSize(uintptr) int { return chunkSize }

// Main does nothing.
func Main() {}

// Guard ends the descendants of processes, on Linux only.
type Guard struct{ owner string }

// NewGuard returns errors.ErrUnsupported.
func NewGuard(string) (*Guard, error) { return nil, errors.ErrUnsupported }

// NewGuardWithGrace returns errors.ErrUnsupported.
func NewGuardWithGrace(string, time.Duration) (*Guard, error) { return nil, errors.ErrUnsupported }

func (*Guard) ownerOf(string) string { return "" }

// Close does nothing.
func (*Guard) Close() {}

// SetDeadline does nothing.
func (*Guard) SetDeadline(time.Time) {}

// Lapses returns 0.
func (*Guard) Lapses() int { return 0 }

// LapsedSince returns false.
func (*Guard) LapsedSince(int) bool { return false }

func (*Guard) addProcess(int)    {}
func (*Guard) removeProcess(int) {}

type groupWatcher struct{}

func newGroupWatcher(int, []string, *syscall.SysProcAttr) (*groupWatcher, error) { return nil, nil }

func (*groupWatcher) stop() {}

// KillOrphans does nothing.
func KillOrphans(context.Context, string) (int, error) { return 0, nil }

// Meter counts nothing.
type Meter struct{}

// Meter returns a Meter that counts nothing.
func (*Process) Meter() Meter { return Meter{} }

// Used returns 0.
func (*Meter) Used() time.Duration { return 0 }

// GroupsOverMemory returns nil.
func GroupsOverMemory(int64) map[int]int64 { return nil }

// MarkVariable returns "".
func MarkVariable(owner string) string { return "" }

func orphanReaper() noReaper { return noReaper{} }

type noReaper struct{}

func (noReaper) trackFork(f func() int) { f() }
func (noReaper) forget(int)             {}
