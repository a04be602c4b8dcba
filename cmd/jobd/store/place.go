package store

import (
	"fmt"
	"strconv"
	"strings"

	"gloom/cmd/internal/process"
)

// Place is the process of an incarnation.
type Place = process.Process

// placeText returns the form in which the companion table stores a place.
func placeText(p Place) string {
	return fmt.Sprintf("%s/%s/%d/%s", p.Boot, p.PIDNamespace, p.PID, p.Start)
}

func parsePlace(text string) Place {
	parts := strings.Split(text, "/")
	if len(parts) != 4 {
		return Place{}
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil {
		return Place{}
	}
	return Place{Boot: parts[0], PIDNamespace: parts[1], PID: pid, Start: parts[3]}
}
