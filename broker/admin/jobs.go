package admin

import (
	"net/http"

	"github.com/goccy/go-json"

	"gloom/broker"
	"gloom/wire"
)

// Job explains where a job stands.
type Job struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	State    string `json:"state"`
	Priority int64  `json:"priority"`
	// Attempts is how often it was handed out, Retries how often it may be
	// handed out again after the first time.
	Attempts int  `json:"attempts"`
	Retries  int  `json:"retries"`
	Bytes    int  `json:"bytes"`
	Detached bool `json:"detached"`
	// Unwanted: it runs, but nobody waits for it any more.
	Unwanted   bool    `json:"unwanted"`
	AgeSeconds float64 `json:"age_seconds"`
	// InSeconds is how long it has been in this state.
	InSeconds float64 `json:"in_state_seconds"`
	// DueSeconds is when its delay, run or deadline is over, if it has one.
	DueSeconds *float64 `json:"due_seconds,omitempty"`
	// Ahead is how many ready jobs come before it; AheadExact is false where
	// there are at least so many.
	Ahead      *int   `json:"ahead,omitempty"`
	AheadExact *bool  `json:"ahead_exact,omitempty"`
	Holds      string `json:"holds,omitempty"`
	Submitter  *Peer  `json:"submitter,omitempty"`
	Worker     *Peer  `json:"worker,omitempty"`
}

// Peer says who is on the other side of a connection.
type Peer struct {
	Number  uint64  `json:"number"`
	Address string  `json:"address"`
	Client  string  `json:"client,omitempty"`
	Seconds float64 `json:"connected_seconds"`
}

func (a *API) peer(p broker.Peer) *Peer {
	if p == 0 {
		return nil
	}
	out := &Peer{Number: uint64(p)}
	h := a.srv.Hub()
	if c := h.Find(p); c != nil {
		out.Address, out.Client = c.Remote, c.Client()
		out.Seconds = float64(h.Now()-c.Opened) / 1e9
	}
	return out
}

func (a *API) getJob(w http.ResponseWriter, r *http.Request) error {
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	var x broker.JobInfo
	var ok bool
	a.srv.Hub().View(func(b *broker.Broker, now int64) { x, ok = b.Explain(now, id) })
	if !ok {
		return unknownJob(id)
	}
	j := Job{
		ID: wire.Value(x.ID), Type: wire.Value(x.Type), State: x.State, Priority: x.Priority,
		Attempts: x.Attempts, Retries: x.Retries, Bytes: x.Bytes, Detached: x.Detached,
		Unwanted: x.Unwanted, AgeSeconds: x.Age.Seconds(), InSeconds: x.In.Seconds(),
		Holds: x.Holds, Submitter: a.peer(x.Submitter), Worker: a.peer(x.Worker),
	}
	if x.Due > 0 {
		due := x.Due.Seconds()
		j.DueSeconds = &due
	}
	if x.State == "queued" {
		j.Ahead, j.AheadExact = &x.Ahead, &x.Exact
	}
	reply(w, http.StatusOK, j)
	return nil
}

func unknownJob(id []byte) error {
	return fail(http.StatusNotFound, "unknown_id", "no job with the id %.64q is delayed, queued or running", wire.Value(id))
}

func (a *API) deleteJob(w http.ResponseWriter, r *http.Request) error {
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	var code broker.Code
	a.srv.Hub().Do(func(b *broker.Broker, now int64) (fx []broker.Effect) {
		fx, code = b.Revoke(now, id)
		return fx
	})
	switch code {
	case broker.UnknownID:
		return unknownJob(id)
	case broker.NotProcessing:
		return fail(http.StatusConflict, "running", "the job %.64q is running; only its submitter can cancel it now", wire.Value(id))
	}
	a.log.Info().Str("id", wire.Value(id)).Str("peer", r.RemoteAddr).Msg("an operator cancelled a job")
	reply(w, http.StatusOK, struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}{wire.Value(id), "cancelled"})
	return nil
}

// DeadJob is a failed job that is kept.
type DeadJob struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	Reason     string          `json:"reason"`
	Priority   int64           `json:"priority"`
	Attempts   int             `json:"attempts"`
	Bytes      int             `json:"bytes"`
	AgeSeconds float64         `json:"failed_seconds_ago"`
	Body       json.RawMessage `json:"body,omitempty"`
}

func (a *API) deadOf(r *http.Request) ([]*broker.DeadLetter, int64, error) {
	n, err := name(r, "type")
	if err != nil {
		return nil, 0, err
	}
	var letters []*broker.DeadLetter
	h := a.srv.Hub()
	h.View(func(b *broker.Broker, _ int64) { letters = b.DeadLetters(n) })
	return letters, h.Now(), nil
}

func deadJob(l *broker.DeadLetter, now int64) DeadJob {
	return DeadJob{
		ID: wire.Value(l.ID), Type: wire.Value(l.Type), Reason: l.Reason, Priority: l.Priority,
		Attempts: l.Attempts, Bytes: len(l.Body), AgeSeconds: float64(now-l.Failed) / 1e9,
	}
}

// getDead lists the failed jobs of a type, latest first, without bodies.
func (a *API) getDead(w http.ResponseWriter, r *http.Request) error {
	from, limit, err := page(r)
	if err != nil {
		return err
	}
	letters, now, err := a.deadOf(r)
	if err != nil {
		return err
	}
	var items []DeadJob
	next := -1
	for i := len(letters) - 1 - from; i >= 0; i-- {
		if len(items) == limit {
			next = from + limit
			break
		}
		items = append(items, deadJob(letters[i], now))
	}
	reply(w, http.StatusOK, listOf(items, next))
	return nil
}

// getDeadJob shows the failed job that a retry of this id would hand in, body
// included: the oldest one, if there are several.
func (a *API) getDeadJob(w http.ResponseWriter, r *http.Request) error {
	letters, now, err := a.deadOf(r)
	if err != nil {
		return err
	}
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	for _, l := range letters {
		if string(l.ID) == string(id) {
			j := deadJob(l, now)
			j.Body = json.RawMessage(l.Body)
			reply(w, http.StatusOK, j)
			return nil
		}
	}
	return fail(http.StatusNotFound, "unknown_id", "no failed job %.64q is kept", wire.Value(id))
}

func (a *API) retryDead(w http.ResponseWriter, r *http.Request) error {
	n, err := name(r, "type")
	if err != nil {
		return err
	}
	id, err := name(r, "id")
	if err != nil {
		return err
	}
	if err := read(r, &struct{}{}); err != nil {
		return err
	}
	var code broker.Code
	var reason string
	a.srv.Hub().Do(func(b *broker.Broker, now int64) (fx []broker.Effect) {
		fx, code, reason = b.Revive(now, n, id)
		return fx
	})
	switch code {
	case 0:
	case broker.UnknownID:
		return fail(http.StatusNotFound, "unknown_id", "%s: %.64q", reason, wire.Value(id))
	default:
		return fail(http.StatusConflict, "refused", "%s", reason)
	}
	a.log.Info().Str("id", wire.Value(id)).Str("peer", r.RemoteAddr).Msg("an operator handed a failed job in again")
	reply(w, http.StatusOK, struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}{wire.Value(id), "queued"})
	return nil
}
