//go:build unix && !linux

package main

import "syscall"

// groupOfItsOwn keeps the terminal's Ctrl-C from commands, and lets us signal
// them together with what they start.
func groupOfItsOwn() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
