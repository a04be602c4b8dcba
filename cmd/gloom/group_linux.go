package main

import "syscall"

// groupOfItsOwn keeps the terminal's Ctrl-C from commands, and lets us signal
// them together with what they start. When this process is killed, its
// commands are told to stop: their jobs run elsewhere by then.
func groupOfItsOwn() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}
