package engine

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/store"

	"github.com/rs/zerolog"
	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	eventsMB            = 100 // the size at which the next file is begun
	eventsFiles         = 5   // how many older files are kept
	eventsFlushInterval = 200 * time.Millisecond
)

// events is the log of what happens to jobs, one JSON object per line.
type events struct {
	mu         sync.Mutex // guards the following
	w          *bufio.Writer
	buf        []byte
	file       *lineFile
	flushTimer *time.Timer // the next flush; nil if nothing waits
}

// openEvents never fails: a log that cannot be written must not stop jobs.
func openEvents(path string, log zerolog.Logger) *events {
	file := &lineFile{Logger: lumberjack.Logger{Filename: path, MaxSize: eventsMB, MaxBackups: eventsFiles}, isTorn: isTorn(path)}
	if _, err := file.Logger.Write(nil); err != nil { // the first write tries to open the file again
		log.Error().Err(err).Str("file", path).Msg("cannot log the events of jobs yet")
	}
	return &events{file: file, w: bufio.NewWriterSize(file, 64<<10)}
}

// lineFile is a log to which whole lines are written. If a full disk cuts a line short, the next line
// begins after it.
type lineFile struct {
	lumberjack.Logger
	isTorn bool // the file does not end with a newline
}

func (f *lineFile) Write(lines []byte) (int, error) {
	if f.isTorn {
		if _, err := f.Logger.Write([]byte("\n")); err != nil {
			return 0, err
		}
	}
	n, err := f.Logger.Write(lines)
	f.isTorn = n > 0 && lines[n-1] != '\n'
	return n, err
}

// isTorn reports whether a file does not end with a newline, such as after a daemon was killed while
// the disk was full.
func isTorn(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var last [1]byte
	_, err = f.Seek(-1, io.SeekEnd)
	if err == nil {
		_, err = f.Read(last[:])
	}
	return err == nil && last[0] != '\n'
}

// Close flushes and closes the log.
func (e *events) Close() {
	e.flush()
	_ = e.file.Close()
}

func (e *events) flush() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.w.Flush() // on a full disk, lines of this log are lost, but no jobs
	e.w.Reset(e.file)
	e.flushTimer = nil
}

// writeEvent logs an event of a job, with further fields in the form of fmt.Appendf. Nothing in it
// needs escaping. It does not use the daemon's log, which takes more than twice the time.
func (e *events) writeEvent(event string, id job.ID, jobtype, fields string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := append(e.buf[:0], `{"time":"`...)
	b = time.Now().UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = append(append(b, `","event":"`...), event...)
	b = append(append(b, `","id":"`...), id...)
	b = append(append(append(b, `","type":"`...), jobtype...), '"')
	e.buf = append(fmt.Appendf(b, fields, args...), "}\n"...)
	if len(e.buf) > e.w.Available() { // each write to the file has whole lines
		_ = e.w.Flush()
	}
	_, _ = e.w.Write(e.buf)
	if e.flushTimer == nil {
		e.flushTimer = time.AfterFunc(eventsFlushInterval, e.flush)
	}
}

func (e *events) logAdded(id job.ID, jobtype string) { e.writeEvent("added", id, jobtype, "") }

func (e *events) logFollowed(jobs []store.FollowJob) {
	for _, f := range jobs {
		e.logAdded(f.ID, f.Jobtype)
	}
}

// logStart counts and logs a run that begins.
func (e *Engine) logStart(r *run, at time.Time) {
	waitTime := r.Waited + at.Sub(r.takenAt)
	e.metrics.waitTime.Observe(waitTime.Seconds())
	e.events.writeEvent("started", r.ID, r.Jobtype, `,"try":%d,"wait":%.6f`, r.Tries, waitTime.Seconds())
}

func (e *events) logEnd(end *queuedEnding) {
	if end.Action != store.EndGiveBack {
		e.writeEvent("ended", end.ID, end.run.Jobtype, `,"try":%d,"code":"%s","exitcode":%d,"run":%.6f`, end.Tries, end.Code, end.Status, end.wall.Seconds())
	}
}

// logSwept logs a job that did not end with a run.
func (e *events) logSwept(end *store.SweptJob) {
	e.writeEvent("ended", end.ID, end.Jobtype, `,"try":%d,"code":"%s"`, end.Tries, end.Code)
}
