package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
)

// read returns the request's body, up to the allowed size. A large body occupies a buffer until
// releaseBuffer is called.
func (s *Web) read(r *request) (body []byte, releaseBuffer func(), err error) {
	releaseBuffer = func() {}
	defer func() {
		if err != nil {
			releaseBuffer()
		}
	}()
	limit := int64(s.opt.MaxBody)
	tooLarge := func() error {
		return fail(http.StatusRequestEntityTooLarge, "too_large", "body", "the body has more than %d bytes (--max-body)", limit)
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		r.w.Header().Set("Connection", "close")
		return nil, releaseBuffer, fail(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Encoding", "a body must not be encoded, but is %.200q", e)
	}
	if r.ContentLength > limit {
		r.w.Header().Set("Connection", "close")
		return nil, releaseBuffer, tooLarge()
	}
	var b bytes.Buffer
	if r.ContentLength > 0 {
		b.Grow(int(min(r.ContentLength, smallBody)) + bytes.MinRead)
	}
	from := http.MaxBytesReader(r.w, r.Body, limit)
	if _, err = io.CopyN(&b, from, smallBody); err == nil {
		if !s.bodyBuffers.acquire(r.Context(), r.client) {
			r.w.Header().Set("Connection", "close")
			return nil, releaseBuffer, unavailable("overloaded", "at most %d large bodies may be in memory (--max-bodies); %s", s.bodyBuffers.limit, s.bodyBuffers.shortage(r.client))
		}
		releaseBuffer = func() { s.bodyBuffers.release(r.client) }
		_, err = b.ReadFrom(from)
	}
	switch {
	case err == nil, err == io.EOF:
		return b.Bytes(), releaseBuffer, nil
	case errors.As(err, new(*http.MaxBytesError)):
		return nil, releaseBuffer, tooLarge()
	case errors.Is(err, io.ErrUnexpectedEOF) && r.ContentLength < 0:
		return nil, releaseBuffer, invalid("body", "the body ended before its last chunk")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, releaseBuffer, invalid("body", "the body ended before its announced length, %d bytes", r.ContentLength)
	default:
		return nil, releaseBuffer, invalid("body", "the body could not be read: %v", err)
	}
}

const (
	directive = "#:"
	batchHead = "#:Batch"
	batchEnd  = "#:EndBatch"
)

// parser splits a body into batches of lines.
type parser struct {
	client    string
	jobtype   string                     // the jobtype of lines outside batches
	maxLine   int                        // maximum size of a line, in bytes
	maxLines  int                        // maximum number of lines in the body
	checkType func(jobtype string) error // returns why a type is refused, or nil

	lineNumber int // number of the current line
	batches    []journal.Batch
	count      int
}

// parse parses a whole body: if any part is wrong, none of it is accepted.
func (p *parser) parse(body []byte) error {
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, []byte("\n"))
		p.lineNumber++
		if !bytes.HasPrefix(line, []byte(directive)) {
			if err := p.add(p.jobtype, line); err != nil {
				return err
			}
			body = rest
			continue
		}
		var err error
		if body, err = p.batch(string(bytes.TrimSuffix(line, []byte("\r"))), rest); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) add(jobtype string, line []byte) error {
	if len(line) == 0 {
		return nil
	}
	if len(line) > p.maxLine {
		return fail(http.StatusRequestEntityTooLarge, "too_large", "line "+strconv.Itoa(p.lineNumber),
			"line %d has %d bytes; at most %d are allowed (--max-line)", p.lineNumber, len(line), p.maxLine)
	}
	if p.count == p.maxLines {
		return fail(http.StatusRequestEntityTooLarge, "too_large", "body",
			"the body has more than %d lines (--max-lines); line %d is one too many", p.maxLines, p.lineNumber)
	}
	last := len(p.batches) - 1
	if last < 0 || p.batches[last].Jobtype != jobtype {
		p.batches = append(p.batches, journal.Batch{Jobtype: jobtype})
		last++
	}
	p.batches[last].Lines = append(p.batches[last].Lines, line)
	p.count++
	return nil
}

func (p *parser) refuse(format string, args ...any) error {
	f := fail(http.StatusBadRequest, "invalid_batch", "line "+strconv.Itoa(p.lineNumber), format, args...)
	f.Reason = "line " + strconv.Itoa(p.lineNumber) + ": " + f.Reason
	return f
}

// batch parses a batch whose first line has been read, and returns what follows the batch.
func (p *parser) batch(head string, body []byte) ([]byte, error) {
	fields, ok := strings.CutPrefix(head, batchHead+" ")
	if !ok {
		return nil, p.refuse("%.60q is not a directive that may begin here; use %q; payloads must not begin with %q", head, batchHead+" bytes=N", directive)
	}
	size, jobtype, err := p.fields(fields)
	if err != nil {
		return nil, err
	}
	if size > len(body) {
		return nil, p.refuse("the batch has bytes=%d, but only %d follow", size, len(body))
	}
	lines, rest := body[:size], body[size:]
	if size > 0 && lines[size-1] != '\n' {
		return nil, p.refuse("bytes=%d does not end after a newline", size)
	}
	firstLine := p.lineNumber
	for len(lines) > 0 {
		var line []byte
		line, lines, _ = bytes.Cut(lines, []byte("\n"))
		p.lineNumber++
		if err := p.add(jobtype, line); err != nil {
			return nil, err
		}
	}
	end, rest, _ := bytes.Cut(rest, []byte("\n"))
	p.lineNumber++
	if string(bytes.TrimSuffix(end, []byte("\r"))) != batchEnd {
		return nil, p.refuse("%q must follow the %d bytes of the batch that begins in line %d, but %.60q follows", batchEnd, size, firstLine, end)
	}
	return rest, nil
}

// fields parses bytes=N[,jobtype=T][,date=D].
func (p *parser) fields(text string) (size int, jobtype string, err error) {
	size, jobtype = -1, p.jobtype
	unseen := []string{"bytes", "jobtype", "date"}
	for field := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(field, "=")
		key = strings.TrimSpace(key)
		i := slices.Index(unseen, key)
		if !ok || i < 0 {
			return 0, "", p.refuse("%.60q is not expected; a batch has bytes=N, jobtype=T and date=D, each at most once", key)
		}
		unseen = slices.Delete(unseen, i, i+1)
		switch key {
		case "bytes":
			if size, err = strconv.Atoi(value); err != nil || size < 0 || value[0] == '+' {
				return 0, "", p.refuse("bytes=%.40s is not a number of bytes", value)
			}
		case "jobtype":
			if jobtype, err = p.checkJobtype(value); err != nil {
				return 0, "", err
			}
		}
	}
	if size < 0 {
		return 0, "", p.refuse("a batch needs bytes=N")
	}
	return size, jobtype, nil
}

// checkJobtype parses the jobtype of a batch, which may be a full one with its client or a bare type.
func (p *parser) checkJobtype(value string) (string, error) {
	client, typ, full := job.SplitJobtype(value)
	if !full {
		client, typ = p.client, value
	}
	if err := job.CheckClient(client); err != nil {
		return "", fail(http.StatusBadRequest, "invalid_client", "jobtype", "line %d: %v", p.lineNumber, err)
	}
	if err := job.CheckType(typ); err != nil {
		return "", fail(http.StatusBadRequest, "invalid_type", "jobtype", "line %d: %v", p.lineNumber, err)
	}
	if client != p.client {
		return "", fail(http.StatusForbidden, "forbidden", "jobtype",
			"line %d: jobtype=%s means client %q and type %q, but these are jobs of client %q; for its type %q write jobtype=%s",
			p.lineNumber, value, client, typ, p.client, value, job.Jobtype(p.client, value))
	}
	jobtype := job.Jobtype(client, typ)
	return jobtype, p.checkType(jobtype)
}
