package store

import (
	"fmt"
	"strconv"
	"strings"

	"gloom/cmd/internal/process"
)

// Process is the process of an incarnation.
type Process = process.Process

// formatProcess returns the form in which the companion table stores a process.
func formatProcess(p Process) string {
	return fmt.Sprintf("%s/%s/%d/%s", p.Boot, p.PIDNamespace, p.PID, p.Start)
}

func parseProcess(text string) Process {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return Process{}
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil {
		return Process{}
	}
	return Process{Boot: parts[0], PIDNamespace: parts[1], PID: pid, Start: parts[3]}
}
