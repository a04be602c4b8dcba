//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// killGroup signals a command and all that it started.
func killGroup(cmd *exec.Cmd, sig syscall.Signal) {
	_ = syscall.Kill(-cmd.Process.Pid, sig)
}
