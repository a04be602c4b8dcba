package engine

import (
	"bufio"
	"sync"
	"time"

	"gloom/cmd/serverlessd/job"
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
	log zerolog.Logger // writes to the events themselves

	mu   sync.Mutex // guards the following
	to   *bufio.Writer
	file *lumberjack.Logger
	due  *time.Timer // the next flush; nil when nothing waits
}

// openEvents never fails: a log that cannot be written must not stop jobs.
func openEvents(path string, log zerolog.Logger) *events {
	file := &lumberjack.Logger{Filename: path, MaxSize: eventsMB, MaxBackups: eventsFiles}
	if _, err := file.Write(nil); err != nil { // the first write tries to open the file again
		log.Error().Err(err).Str("file", path).Msg("cannot log the events of jobs yet")
	}
	l := &events{file: file, to: bufio.NewWriterSize(file, 64<<10)}
	l.log = zerolog.New(l)
	return l
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

// Write writes a line, soon.
func (l *events) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(line)
	if l.due == nil {
		l.due = time.AfterFunc(eventsFlush, l.flush)
	}
	return len(line), nil
}

// event begins a line.
func (l *events) event(what string, id job.ID, jobtype string) *zerolog.Event {
	return l.log.Log().Str("time", time.Now().UTC().Format("2006-01-02T15:04:05.000Z")).
		Str("event", what).Str("id", string(id)).Str("type", jobtype)
}

func seconds(d time.Duration) float64 { return d.Round(time.Microsecond).Seconds() }

func (l *events) added(id job.ID, jobtype string) { l.event("added", id, jobtype).Send() }

func (l *events) followed(jobs []store.Follow) {
	for _, f := range jobs {
		l.added(f.ID, f.Jobtype)
	}
}

// started counts and logs a run that begins.
func (e *Engine) started(r *run, at time.Time) {
	waited := r.Waited + at.Sub(r.takenAt)
	e.meter.waitTime.Observe(waited.Seconds())
	e.events.event("started", r.ID, r.Jobtype).Int("try", r.Tries).Float64("wait", seconds(waited)).Send()
}

func (l *events) ended(end *ending) {
	if end.Fate != store.GiveBack {
		l.event("ended", end.ID, end.run.Jobtype).Int("try", end.Tries).Str("code", end.Code).
			Int("exitcode", end.Status).Float64("run", seconds(end.wall)).Send()
	}
}

// swept logs a job that did not end with a run.
func (l *events) swept(end *store.Ended) {
	l.event("ended", end.ID, end.Jobtype).Int("try", end.Tries).Str("code", end.Code).Send()
}
