package proc

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Usage holds the resources that a process uses at one moment.
type Usage struct {
	RSS         int64 `json:"rss_bytes"` // resident memory
	Descriptors int   `json:"descriptors"`
	Threads     int   `json:"threads"`
}

// UsageOf reads the usage of process pid.
func UsageOf(pid int) (Usage, error) {
	p, stat, err := readStat(pid)
	if err != nil {
		return Usage{}, err
	}
	fds, err := p.FileDescriptorsLen()
	if err != nil {
		return Usage{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Usage{RSS: int64(stat.ResidentMemory()), Descriptors: fds, Threads: stat.NumThreads}, nil
}

// ResidentMemory returns the resident memory of process pid, in bytes. It is cheaper to read than
// the complete usage.
func ResidentMemory(pid int) (int64, error) {
	_, stat, err := readStat(pid)
	return int64(stat.ResidentMemory()), err
}

func readStat(pid int) (p procfs.Proc, stat procfs.ProcStat, err error) {
	if p, err = procfs.NewProc(pid); err == nil {
		stat, err = p.Stat()
	}
	if err != nil {
		err = fmt.Errorf("process %d: %w", pid, err)
	}
	return p, stat, err
}

// ListenerPID finds the process that listens on a TCP port of this machine.
func ListenerPID(port int) (pid int, err error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	inodes := make(map[string]bool)
	//lint:ignore SA1019 reading /proc once is enough; a netlink library would be too much for it
	for _, read := range []func() (procfs.NetTCP, error){fs.NetTCP, fs.NetTCP6} {
		lines, err := read()
		if err != nil {
			continue // no IPv6
		}
		for _, l := range lines {
			if l.St == tcpListen && l.LocalPort == uint64(port) {
				inodes[fmt.Sprintf("socket:[%d]", l.Inode)] = true
			}
		}
	}
	procs, err := fs.AllProcs()
	if err != nil {
		return 0, err
	}
	for _, p := range procs {
		targets, err := p.FileDescriptorTargets()
		if err != nil {
			continue // the process has ended, or this user may not read its files
		}
		for _, t := range targets {
			if inodes[t] {
				return p.PID, nil
			}
		}
	}
	return 0, fmt.Errorf("no process that this user may inspect listens on port %d", port)
}

const tcpListen = 0x0a
