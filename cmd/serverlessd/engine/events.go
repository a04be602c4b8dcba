package engine

import (
	"bufio"
	"strconv"
	"sync"
	"time"

	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"

	"github.com/rs/zerolog"
	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	eventsMB    = 100 // the size at which the next file is begun
	eventsFiles = 5   // how many older files are kept
	eventsFlush = 200 * time.Millisecond
)

// events is the log of what happens to jobs, one JSON object per line.
type events struct {
	mu   sync.Mutex // guards the following
	to   *bufio.Writer
	line []byte
	file *lumberjack.Logger
	due  *time.Timer // the next flush; nil when nothing waits
}

// openEvents never fails: a log that cannot be written must not stop jobs.
func openEvents(path string, log zerolog.Logger) *events {
	file := &lumberjack.Logger{Filename: path, MaxSize: eventsMB, MaxBackups: eventsFiles}
	if _, err := file.Write(nil); err != nil { // the first write tries to open the file again
		log.Error().Err(err).Str("file", path).Msg("cannot log the events of jobs yet")
	}
	return &events{file: file, to: bufio.NewWriterSize(file, 64<<10)}
}

// Close flushes and closes the log.
func (l *events) Close() {
	l.flush()
	_ = l.file.Close()
}

func (l *events) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.to.Flush() // on a full disk, lines of this log are lost, but no jobs
	l.to.Reset(l.file)
	l.due = nil
}

// begin locks the log and starts a line; end unlocks it.
func (l *events) begin(event, id, jobtype string) {
	l.mu.Lock()
	b := append(l.line[:0], `{"time":"`...)
	b = time.Now().UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(append(b, `","event":"`...), event...)
	b = append(append(b, `","id":"`...), id...)
	l.line = append(append(b, `","type":"`...), jobtype...)
	l.line = append(l.line, '"')
}

func (l *events) number(key string, n int64) {
	b := append(append(l.line, `,"`...), key...)
	l.line = strconv.AppendInt(append(b, `":`...), n, 10)
}

func (l *events) seconds(key string, d time.Duration) {
	b := append(append(l.line, `,"`...), key...)
	l.line = strconv.AppendFloat(append(b, `":`...), d.Seconds(), 'f', 6, 64)
}

func (l *events) end() {
	l.line = append(l.line, "}\n"...)
	_, _ = l.to.Write(l.line)
	if l.due == nil {
		l.due = time.AfterFunc(eventsFlush, l.flush)
	}
	l.mu.Unlock()
}

func (l *events) added(entry *journal.Entry) {
	l.begin("added", entry.ID.String(), entry.Jobtype)
	l.end()
}

func (l *events) followed(f *store.Follow) {
	l.begin("added", f.ID.String(), f.Jobtype)
	l.end()
}

// started counts and logs a run that begins.
func (e *Engine) started(r *run, at time.Time) {
	e.meter.waitTime.Observe((r.Waited + at.Sub(r.takenAt)).Seconds())
	e.events.started(r, at)
}

func (l *events) started(r *run, at time.Time) {
	l.begin("started", r.ID.String(), r.Jobtype)
	l.number("try", int64(r.Tries))
	l.seconds("wait", r.Waited+at.Sub(r.takenAt))
	l.end()
}

func (l *events) ended(end *ending) {
	if end.Fate == store.GiveBack {
		return
	}
	l.begin("ended", end.ID.String(), end.run.Jobtype)
	l.stopped(end.Tries, end.Code)
	l.number("exitcode", int64(end.Status))
	l.seconds("run", end.wall)
	l.end()
}

// swept logs a job that did not end with a run.
func (l *events) swept(end *store.Ended) {
	l.begin("ended", end.ID.String(), end.Jobtype)
	l.stopped(end.Tries, end.Code)
	l.end()
}

func (l *events) stopped(try int, code string) {
	l.number("try", int64(try))
	l.line = append(append(append(l.line, `,"code":"`...), code...), '"')
}
