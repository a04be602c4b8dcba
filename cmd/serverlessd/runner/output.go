package runner

import (
	"bytes"
	"fmt"
	"strconv"
	"sync"

	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

const (
	maxLogLine = 1 << 10 // bytes of a line that the log shows
	// tailSize is the number of bytes of a process's last output that are in the message about its
	// death.
	tailSize = 1 << 10
)

// stepResult is the result of a step. A handler process ends each step with an end line, which has
// the process's secret, a number, and the size of the data that follow it. Everything that was printed
// since the last end line and its data belongs to the step.
type stepResult struct {
	number int
	data   []byte
	fault  *runFault // set if the step has printed something invalid or too much; the other fields are then zero
	followLines
	statusLine *statusLine
}

// statusLine is the content of an R: line.
type statusLine struct {
	status int
	data   []byte
}

// output parses what a handler process prints. Only the goroutine that reads the pipe calls Write.
type output struct {
	secret   []byte
	maxLine  int   // of J: payloads
	maxLines int   // maximum number of J: lines of a step
	maxSize  int64 // maximum size of a step's output, in bytes
	log      zerolog.Logger
	results  chan stepResult // has room for one: a step begins only after the result of the last one was taken

	current  stepResult
	line     []byte // the kept part of the current line
	dataLeft int    // how many bytes of the end line's data are still to come

	mu        sync.Mutex // guards the following
	bytesLeft int64      // how many bytes may still come before the next end line
	tail      []byte     // the end of a step's standard error
}

func newOutput(secret string, o *Options, log zerolog.Logger) *output {
	return &output{
		secret: []byte(secret), maxLine: o.MaxLineBytes, maxLines: o.MaxLines, maxSize: o.MaxOutput, log: log,
		results: make(chan stepResult, 1), bytesLeft: o.MaxOutput,
	}
}

// takeBytes counts n more bytes, and reports whether the step may print them.
func (o *output) takeBytes(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytesLeft -= int64(n)
	return o.bytesLeft >= 0
}

// Write fails, which closes the pipe, when a step has printed too much, or an invalid end line.
func (o *output) Write(p []byte) (int, error) {
	if !o.takeBytes(len(p)) {
		return 0, o.fail(codeOutput, "more than %d bytes were printed", o.maxSize)
	}
	n := len(p)
	for len(p) > 0 {
		if o.dataLeft > 0 {
			part := p[:min(o.dataLeft, len(p))]
			o.current.data = append(o.current.data, part...)
			p = p[len(part):]
			o.dataLeft -= len(part)
			if o.dataLeft > 0 {
				break
			}
			if err := o.stepEnded(); err != nil {
				return 0, err
			}
			continue
		}
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			o.keep(p)
			break
		}
		o.keep(p[:end])
		p = p[end+1:]
		if err := o.lineEnded(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// fail ends the step with a fault.
func (o *output) fail(code, format string, args ...any) error {
	f := runFault{code: code, text: fmt.Sprintf(format, args...)}
	select {
	case o.results <- stepResult{fault: &f}:
	default: // no step waits
	}
	return fmt.Errorf("%s: %s", f.code, f.text)
}

// keep appends to the current line. If the line may be a J: or R: line, it keeps all of it,
// otherwise only the beginning.
func (o *output) keep(part []byte) {
	if head := 4 - len(o.line); head > 0 {
		head = min(head, len(part))
		o.line, part = append(o.line, part[:head]...), part[head:]
	}
	limit := maxLogLine
	if bytes.HasPrefix(o.line, []byte("R: ")) {
		limit = len(o.line) + len(part)
	} else if _, ok := cutFollow(o.line); ok {
		limit = o.maxLine + job.MaxType + 16 // a longer line is bad whatever follows
	}
	o.line = append(o.line, part[:max(0, min(len(part), limit-len(o.line)))]...)
}

func (o *output) lineEnded() error {
	line := o.line
	if o.line = o.line[:0]; cap(o.line) > 64<<10 {
		o.line = nil
	}
	if rest, ok := bytes.CutPrefix(line, o.secret); ok {
		return o.endStep(rest)
	}
	if rest, ok := bytes.CutPrefix(line, []byte("R: ")); ok {
		if number, data, ok := status(rest); ok {
			o.current.statusLine = &statusLine{number, bytes.Clone(data)}
			return nil
		}
	} else if rest, ok := cutFollow(line); ok {
		if o.current.count() == o.maxLines {
			return o.fail(codeLines, "more than %d J: lines were printed", o.maxLines)
		}
		if o.current.add(rest, o.maxLine) {
			return nil
		}
	} else if len(line) > 0 {
		o.log.Debug().Bytes("line", line).Msg("a job printed")
		return nil
	}
	if len(line) > 0 {
		o.log.Warn().Bytes("line", line[:min(len(line), 200)]).Msg("a job printed a bad line")
	}
	return nil
}

// endStep parses what follows the secret: " NUMBER SIZE".
func (o *output) endStep(rest []byte) error {
	fields := bytes.Fields(rest)
	if len(fields) != 2 {
		return o.fail(codeContextDied, "the handler process printed an invalid end-of-step line")
	}
	number, err := strconv.Atoi(string(fields[0]))
	size, err2 := strconv.Atoi(string(fields[1]))
	if err != nil || err2 != nil || size < 0 {
		return o.fail(codeContextDied, "the handler process printed an invalid end-of-step line")
	}
	if int64(size) > o.maxSize {
		return o.fail(codeOutput, "the data has %d bytes; at most %d are allowed", size, o.maxSize)
	}
	o.current.number, o.dataLeft = number, size
	if size == 0 {
		return o.stepEnded()
	}
	return nil
}

func (o *output) stepEnded() error {
	o.mu.Lock()
	o.bytesLeft = o.maxSize
	o.mu.Unlock()
	done := o.current
	o.current = stepResult{}
	select {
	case o.results <- done:
		return nil
	default:
		return o.fail(codeContextDied, "the handler process printed an unexpected end-of-step line")
	}
}

// stderr is a handler process's standard error. It is logged, and may explain the death of the
// process. What is printed there counts as output, too.
type stderr struct{ *output }

func (s stderr) Write(p []byte) (int, error) {
	if !s.takeBytes(len(p)) {
		return 0, s.fail(codeOutput, "more than %d bytes were printed", s.maxSize)
	}
	s.mu.Lock()
	s.tail = append(s.tail, p...)
	s.tail = s.tail[max(0, len(s.tail)-job.MaxStderr):]
	s.mu.Unlock()
	s.log.Debug().Bytes("text", p[:min(len(p), maxLogLine)]).Msg("a job printed an error")
	return len(p), nil
}

// stderrTail returns the end of standard error as text.
func (o *output) stderrTail() string {
	tail := o.errors()
	return string(bytes.ToValidUTF8(bytes.TrimSpace(tail[max(0, len(tail)-tailSize):]), []byte("\uFFFD")))
}

// errors returns the end of what a step has printed to standard error.
func (o *output) errors() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.tail)
}

// forget drops the text that was printed to standard error so far, because the text belongs to an
// earlier step.
func (o *output) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = o.tail[:0]
}
