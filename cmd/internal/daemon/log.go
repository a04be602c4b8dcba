package daemon

import (
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"gopkg.in/natefinch/lumberjack.v2"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
)

const (
	logFileMB = 50 // size of one log file before it is rotated
	logFiles  = 5  // rotated files that are kept
	// logRate limits the lines below error that are logged per second, after a burst of as many.
	// Otherwise many bad peers could fill the log.
	logRate = 100
)

// LogConfig configures a log.
type LogConfig struct {
	File         string // path; "" writes no file
	LevelFile    string // trace, debug, info, warn or error
	LevelConsole string
	Format       string // one of LogFormats; "" is console
}

// LogFormats are the formats of logs: lines that people read, or JSON. With auto a
// terminal gets lines and everything else JSON.
var LogFormats = []string{"auto", "json", "console"}

// LogFormatHelp describes the flag for the format.
const LogFormatHelp = "json, console (lines for people) or auto: console on a terminal, else json"

// Log is a daemon's log: the console and, if configured, a file, each with its own level.
// Its rate of lines is limited.
type Log struct {
	zerolog.Logger
	// Audit is the same log without the limit, for actions of operators: a flood of other
	// lines must not hide them.
	Audit zerolog.Logger
	// IsJSON reports whether the console gets JSON, for programs, rather than lines for people.
	IsJSON bool
	file   *lumberjack.Logger
}

// OpenLog opens the log. It returns an error if the file cannot be written. If opening the file
// hangs, as for a pipe without a reader, lines are lost as when writing hangs.
func OpenLog(config LogConfig, console io.Writer) (*Log, error) {
	l := &Log{IsJSON: usesJSON(console, config.Format)}
	minLevel := parseLevel(config.LevelConsole)
	out, file := cli.NewLossyWriter(console, consoleTimeout), cli.NewLossyWriter(nil, fileTimeout)
	out.LossNotice = lossNotice(console, config.Format, "console_lines_lost")
	var err error
	writers := []io.Writer{withLevel(formatWriter(console, out, config.Format), minLevel)}
	if config.File != "" {
		// The library opens the file at the first line; an invalid path is reported now.
		if err = checkWritable(config.File); err != nil && !errors.Is(err, errSlowOpen) {
			return nil, fmt.Errorf("cannot write the log file: %w", err)
		}
		l.file = &lumberjack.Logger{Filename: config.File, MaxSize: logFileMB, MaxBackups: logFiles}
		file = cli.NewLossyWriter(l.file, fileTimeout)
		file.LossNotice = lossNotice(l.file, config.Format, "file_lines_lost")
		writers = append(writers, withLevel(formatWriter(l.file, file, config.Format), parseLevel(config.LevelFile)))
		minLevel = min(minLevel, parseLevel(config.LevelFile))
	}
	l.Audit = zerolog.New(zerolog.MultiLevelWriter(writers...)).Level(minLevel).With().Timestamp().Logger().
		Hook(zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
			if n := file.Lost(); n > 0 { // the file may hang forever, so the console shows how many
				e.Int64("file_lines_lost_so_far", n)
			}
		}))
	l.Logger = l.Audit.Hook(newRateLimit(logRate))
	// net/http prints some errors of its clients with package log. They would have no format and no
	// limit, and would wait for a console that hangs.
	stdlog.SetFlags(0)
	stdlog.SetOutput(guard.ErrorLog(l.Logger).Writer())
	if err != nil {
		l.Warn().Err(err).Str("path", config.File).Msg("the log file cannot be opened yet; until then its lines are lost")
	}
	return l, nil
}

// lossNotice returns a function that formats the line that says how many lines were lost.
func lossNotice(to io.Writer, format, key string) func(lost int64) string {
	return func(lost int64) string {
		var line strings.Builder
		log := zerolog.New(formatWriter(to, &line, format)).With().Timestamp().Logger()
		log.Warn().Int64(key, lost).Msg("lines of this log were lost")
		return line.String()
	}
}

var errSlowOpen = errors.New("opening it takes too long")

// checkWritable opens a file for writing, and closes it. If that takes longer than fileTimeout, it
// returns errSlowOpen.
func checkWritable(path string) error {
	opened := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
		if err == nil {
			f.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return err
	case <-time.After(fileTimeout):
		return errSlowOpen
	}
}

// Announce logs that the program is ready. People get the addresses, and the settings in a second
// line at level debug; programs get all of it in one line.
func (l *Log) Announce(message string, addresses, settings func(*zerolog.Event)) {
	e := l.Info().Func(addresses)
	if !l.IsJSON {
		e.Msg(message)
		e, message = l.Debug(), "settings"
	}
	e.Func(settings).Msg(message)
}

// Reopen opens the file again at the next line, after it was moved away.
func (l *Log) Reopen() {
	if l.file != nil {
		_ = l.file.Close()
	}
}

func parseLevel(name string) zerolog.Level {
	l, err := zerolog.ParseLevel(name)
	if err != nil {
		return zerolog.WarnLevel
	}
	return l
}

func withLevel(to io.Writer, minLevel zerolog.Level) io.Writer {
	return &zerolog.FilteredLevelWriter{Writer: zerolog.LevelWriterAdapter{Writer: to}, Level: minLevel}
}

func usesJSON(to io.Writer, format string) bool {
	return format == "json" || format == "auto" && !cli.IsTerminal(to)
}

// formatWriter returns a writer that passes JSON on to out, or turns it into lines for people, with
// colours if the console shows them.
func formatWriter(console, out io.Writer, format string) io.Writer {
	if usesJSON(console, format) {
		return out
	}
	return zerolog.ConsoleWriter{Out: out, TimeFormat: time.RFC3339, NoColor: !cli.HasColours(console)}
}

// rateLimit drops lines beyond a rate. The next line that passes says how many were dropped.
type rateLimit struct {
	mu             sync.Mutex
	linesPerSecond float64
	tokens         float64
	refilledAt     time.Time
	droppedLines   int
}

func newRateLimit(rate float64) *rateLimit {
	return &rateLimit{linesPerSecond: rate, tokens: rate, refilledAt: time.Now()}
}

// Run implements zerolog.Hook.
func (r *rateLimit) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if level >= zerolog.ErrorLevel {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.tokens = min(r.linesPerSecond, r.tokens+now.Sub(r.refilledAt).Seconds()*r.linesPerSecond)
	r.refilledAt = now
	if r.tokens < 1 {
		r.droppedLines++
		e.Discard()
		return
	}
	r.tokens--
	if r.droppedLines > 0 {
		e.Int("lines_dropped", r.droppedLines)
		r.droppedLines = 0
	}
}
