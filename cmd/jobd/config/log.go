package config

import (
	"fmt"
	"slices"
)

// Log says what a daemon logs, and where.
type Log struct {
	File         string // path; "" for no file
	LevelFile    string // one of Levels
	LevelConsole string // one of Levels
	Format       string // of the console: "console" or "json"
}

// Levels are the names of the log levels, the most verbose first.
var Levels = []string{"trace", "debug", "info", "warn", "error"}

func (r *reader) readLog() Log {
	l := Log{
		File:         r.readText("log_file", ""),
		LevelFile:    r.readText("log_level_file", "warn"),
		LevelConsole: r.readText("log_level_console", "warn"),
		Format:       r.readChoice("log_format", "console", "json"),
	}
	if err := CheckLevel(l.LevelConsole); err != nil {
		r.fail("log_level_console", "'log_level_console': %w", err)
	}
	if err := CheckLevel(l.LevelFile); err != nil && l.File != "" {
		r.fail("log_level_file", "'log_level_file': %w", err)
	}
	return l
}

// CheckLevel returns an error unless name is one of Levels.
func CheckLevel(name string) error {
	if !slices.Contains(Levels, name) {
		return fmt.Errorf("level '%s' is not allowed, use one of %v", name, Levels)
	}
	return nil
}
