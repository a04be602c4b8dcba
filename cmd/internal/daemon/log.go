package daemon

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
	"gopkg.in/natefinch/lumberjack.v2"

	"gloom/cmd/jobd/config"
)

const (
	logFileMB = 50 // of one log file, before it is set aside
	logFiles  = 5  // that are set aside
	logBurst  = 100
)

// Log is a daemon's log: the console, and a file where one is configured, each
// with its own level.
type Log struct {
	zerolog.Logger
	file *lumberjack.Logger
}

// OpenLog opens the log. An error says that the file cannot be written.
func OpenLog(c config.Log, console io.Writer) (*Log, error) {
	l := &Log{}
	low := level(c.LevelConsole)
	if c.Format != "json" {
		console = text(console)
	}
	writers := []io.Writer{&zerolog.FilteredLevelWriter{Writer: zerolog.LevelWriterAdapter{Writer: console}, Level: low}}
	if c.File != "" {
		// The library opens at the first line; a path that cannot be is told now.
		f, err := os.OpenFile(c.File, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, fmt.Errorf("cannot write the log file: %w", err)
		}
		f.Close()
		l.file = &lumberjack.Logger{Filename: c.File, MaxSize: logFileMB, MaxBackups: logFiles}
		file := io.Writer(l.file)
		if c.Format != "json" {
			file = text(file)
		}
		writers = append(writers, &zerolog.FilteredLevelWriter{
			Writer: zerolog.LevelWriterAdapter{Writer: file}, Level: level(c.LevelFile)})
		low = min(low, level(c.LevelFile))
	}
	// A flood of bad peers must not become a flood of lines.
	enough := &zerolog.BurstSampler{Burst: logBurst, Period: time.Second}
	l.Logger = zerolog.New(zerolog.MultiLevelWriter(writers...)).Level(low).With().Timestamp().Logger().
		Sample(zerolog.LevelSampler{InfoSampler: enough, WarnSampler: enough})
	return l, nil
}

// Reopen has the file opened anew at the next line, for those who have moved
// it away.
func (l *Log) Reopen() {
	if l.file != nil {
		_ = l.file.Close()
	}
}

func level(name string) zerolog.Level {
	l, err := zerolog.ParseLevel(name)
	if err != nil {
		return zerolog.WarnLevel
	}
	return l
}

// text writes lines for people, with colours where these are shown.
func text(to io.Writer) io.Writer {
	f, ok := to.(*os.File)
	return zerolog.ConsoleWriter{Out: to, TimeFormat: time.RFC3339, NoColor: !ok || !term.IsTerminal(int(f.Fd()))}
}
