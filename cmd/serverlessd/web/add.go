package web

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
)

const (
	// storedWait limits the time that wait=store waits for a store.
	storedWait  = 30 * time.Second
	maxDueYears = 10 // the longest delay, in years
)

func (s *Web) addAny(r *request) error {
	if !r.query.Has("jobtype") {
		return missing("jobtype", "/add needs jobtype=TYPE in its query")
	}
	r.name = r.query.Get("jobtype")
	r.client = job.DefaultClient
	if r.query.Has("client") {
		r.client = r.query.Get("client")
		if r.client == "" {
			return fail(http.StatusBadRequest, "invalid_client", "client", "the client is empty")
		}
	}
	if err := r.checkClient(); err != nil {
		return err
	}
	err := checkType("jobtype", r.name)
	if err == nil {
		err = r.setJobtype()
	}
	if err != nil {
		return err
	}
	return s.add(r)
}

func (s *Web) add(r *request) error {
	now := time.Now()
	due, err := r.due(now)
	if err != nil {
		return err
	}
	var delay time.Duration
	if r.query.Has("delay") && !due.IsZero() {
		delay = due.Sub(now)
	}
	wait := r.query.Get("wait")
	if r.query.Has("wait") && wait != "store" {
		return invalid("wait", "wait=%.40q: must be store, or absent", wait)
	}
	keyReq, err := r.unique()
	if err != nil {
		return err
	}
	reply, receipt, err := s.addLines(r, due, delay, keyReq)
	if err != nil {
		return err
	}
	switch {
	case wait == "" || reply.Count == 0 && keyReq == nil:
	case keyReq != nil:
		reply.Stored = new(bool)
		*reply.Stored = true
	default:
		ctx, cancel := context.WithTimeout(r.Context(), storedWait)
		defer cancel()
		err := s.queue.Stored(ctx, receipt)
		stored := err == nil
		if reply.Stored = &stored; errors.Is(err, journal.ErrSetAside) {
			reply.Reason = err.Error()
		}
	}
	return answer(r.w, reply.status, reply)
}

// addLines reads a body and adds its lines, to the journal or, with keys, to the store.
func (s *Web) addLines(r *request, due time.Time, delay time.Duration, keyReq *keyRequest) (reply addReply, receipt journal.Receipt, err error) {
	body, releaseBuffer, err := s.read(r)
	if err != nil {
		return reply, receipt, err
	}
	defer releaseBuffer()
	p := parser{client: r.client, jobtype: r.jobtype, maxLine: s.opt.MaxLineBytes, maxLines: s.opt.MaxLines, checkType: r.covers}
	if err := p.parse(body); err != nil {
		return reply, receipt, err
	}
	reply = addReply{OK: true, Count: p.count, IDs: idListJSON("[]"), status: http.StatusOK}
	for i := range p.batches {
		p.batches[i].Due, p.batches[i].Delay = due, delay
		if s.queue.IsUnhandled(p.batches[i].Jobtype) {
			reply.Handlers = new(int)
		}
	}
	switch {
	case p.count == 0:
	case keyReq != nil:
		err = s.addUnique(r, &p, keyReq, &reply)
	default:
		receipt, err = s.append(r, &p, &reply)
	}
	return reply, receipt, err
}

// append adds lines to the journal.
func (s *Web) append(r *request, p *parser, reply *addReply) (receipt journal.Receipt, err error) {
	receipt, err = s.queue.Add(r.Context(), p.batches)
	if err != nil && r.Context().Err() != nil {
		return receipt, unavailable("journal_failed", "the disk took too long: the lines may have been accepted, or not")
	}
	if err != nil {
		return receipt, err
	}
	reply.IDs = make(idListJSON, 0, p.count*idSize+1)
	for i, first := range receipt.First {
		for n := range p.batches[i].Lines {
			reply.IDs.add(first.Add(n))
		}
	}
	reply.IDs.close()
	return receipt, nil
}

// idListJSON is a list of ids as JSON. As strings they would take more memory than the lines of most
// requests.
type idListJSON []byte

// idSize is the number of bytes that an id takes in the JSON list.
const idSize = job.IDLen + len(`"",`)

func (l *idListJSON) add(id job.ID) { *l = append(append(append(*l, `,"`...), id...), '"') }

// close closes the list, which must have at least one id.
func (l *idListJSON) close() {
	(*l)[0] = '['
	*l = append(*l, ']')
}

// MarshalJSON implements json.Marshaler.
func (l idListJSON) MarshalJSON() ([]byte, error) { return l, nil }

// addReply is the answer to an add.
type addReply struct {
	OK     bool       `json:"ok"`
	Count  int        `json:"count"` // number of new jobs
	ID     job.ID     `json:"id,omitempty"`
	IDs    idListJSON `json:"ids"`
	Unique any        `json:"unique,omitempty"` // what happened to lines whose key another job held
	Stored *bool      `json:"stored,omitempty"`
	// Handlers is 0 if a type of the lines has no handler, and nil otherwise. The jobs of such a type
	// wait until the type has a handler.
	Handlers *int `json:"handlers,omitempty"`
	// Reason says why no store will ever accept the lines, if Stored is false for this reason.
	Reason string `json:"reason,omitempty"`
	status int
}

// due returns the time at which the jobs are due, or zero if they are due at once.
func (r *request) due(now time.Time) (due time.Time, err error) {
	field := "dt"
	switch delay, dt := r.query.Has("delay"), r.query.Has("dt"); {
	case delay && dt:
		return due, invalid("delay", "delay and dt cannot both be given")
	case delay:
		field = "delay"
		d, err := job.ParseDuration(r.query.Get("delay"))
		if err != nil {
			return due, invalid("delay", "delay: %v", err)
		}
		due = now.Add(d)
		if d > 0 && due.Before(now) {
			due = now.AddDate(maxDueYears+1, 0, 0)
		}
	case dt:
		if due, err = parseTime(r.query.Get("dt")); err != nil {
			return due, err
		}
	}
	switch {
	case due.After(now.AddDate(maxDueYears, 0, 0)):
		return due, invalid(field, "%s=%s is more than %d years from now", field, r.query.Get(field), maxDueYears)
	case !due.After(now):
		return time.Time{}, nil
	}
	return due, nil
}

// timeLayouts holds the accepted forms of ISO 8601. Times without a zone are UTC.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", "2006-01-02"}

func parseTime(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && s[0] != '+' && ms < 1<<53 && ms > -1<<53 {
		return time.UnixMilli(ms), nil
	}
	for _, form := range timeLayouts {
		if t, err := time.Parse(form, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, invalid("dt", "dt %.40q is not a time; write 2006-01-02T15:04:05Z, or milliseconds since 1970", s)
}
