package store

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Table is a table of jobs in memory, with its companion table: the twin of
// the real one, for tests of what is built on a Store.
type Table struct {
	// Now is the database's clock.
	Now func() time.Time

	mu     sync.Mutex // guards the following
	rows   map[int64]*Record
	claims map[int64]claim
	owners map[int64]*memoryOwner
	err    error
}

// Record is a row of a Table. Pointers are nil where the column is NULL.
type Record struct {
	Row
	Status         string
	TimeStarted    int64
	TimeFinished   int64
	Result, Signal *string
	Code           *int
	Stdout, Stderr *string
}

type claim struct {
	token  int64
	manual bool
}

type memoryOwner struct {
	Owner
	lease time.Time
}

// NewTable returns an empty table on the system's clock.
func NewTable() *Table {
	return &Table{Now: time.Now, rows: make(map[int64]*Record), claims: make(map[int64]claim), owners: make(map[int64]*memoryOwner)}
}

// Put adds or replaces a row, Get returns a copy of one, Delete removes one.
func (t *Table) Put(r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows[r.ID] = &r
}

func (t *Table) Get(id int64) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if r == nil {
		return Record{}, false
	}
	return *r, true
}

func (t *Table) Delete(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, id)
}

// SetStatus changes a row's status behind the daemons' backs.
func (t *Table) SetStatus(id int64, status string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows[id].Status = status
}

// Fail makes all calls fail as if the database were away; nil ends that.
func (t *Table) Fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
}

// ClaimCount is how many rows are claimed, by anyone.
func (t *Table) ClaimCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.claims)
}

// Memory is a Store on a Table.
type Memory struct {
	t     *Table
	name  string
	lease time.Duration
	place Place

	token int64 // guarded by the table's lock
}

// Open returns the table as a daemon of that name and place sees it.
func (t *Table) Open(name string, lease time.Duration, place Place) *Memory {
	return &Memory{t: t, name: name, lease: lease, place: place}
}

func (s *Memory) enter() (func(), error) {
	s.t.mu.Lock()
	if s.t.err != nil {
		err := s.t.err
		s.t.mu.Unlock()
		return nil, &awayError{err}
	}
	return s.t.mu.Unlock, nil
}

func (s *Memory) Accept(_ context.Context, targets []string, limit int) (Page, error) {
	leave, err := s.enter()
	if err != nil {
		return Page{}, err
	}
	defer leave()
	if o := s.t.owners[s.token]; o == nil || o.Dead {
		return Page{}, ErrFenced
	}
	if limit <= 0 {
		limit = page
	}
	var p Page
	cut := make(map[string]bool)
	for _, target := range targets {
		var found []Row
		for _, r := range s.t.rows {
			if r.Status == Waiting && r.Target == target {
				found = append(found, r.Row)
			}
		}
		slices.SortFunc(found, byRowID)
		cut[target] = len(found) >= limit
		p.Rows = append(p.Rows, found[:min(limit, len(found))]...)
	}
	slices.SortFunc(p.Rows, byRowID)
	if len(p.Rows) > limit {
		for _, row := range p.Rows[limit:] {
			cut[row.Target] = true
		}
		p.Rows = p.Rows[:limit]
	}
	for _, target := range targets {
		if cut[target] {
			p.More = append(p.More, target)
		}
	}
	for _, row := range p.Rows {
		s.take(row.ID, false)
	}
	return p, nil
}

func (s *Memory) take(id int64, manual bool) {
	s.t.rows[id].Status = Accepted
	s.t.claims[id] = claim{token: s.token, manual: manual}
}

func (s *Memory) AcceptManual(_ context.Context, ids []int64, serves func(string) bool) ([]Request, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if o := s.t.owners[s.token]; o == nil || o.Dead {
		return nil, ErrFenced
	}
	requests := make([]Request, len(ids))
	for i, id := range ids {
		r := s.t.rows[id]
		requests[i].Row.ID = id
		if r == nil {
			continue
		}
		requests[i] = Request{Row: r.Row, Found: true, Status: r.Status}
		switch {
		case r.Status == Manual && serves(r.Target):
			requests[i].Accepted, requests[i].Status = true, ""
			s.take(id, true)
		case r.Status == Manual || r.Status == Waiting:
			r.Status = Ignored
		}
	}
	return requests, nil
}

func (s *Memory) Resolve(context.Context) ([]Row, error) { return nil, nil }

func (s *Memory) Write(_ context.Context, b Batch) (Written, error) {
	w := Written{Lost: make(map[int64]string), Failed: make(map[int64]error)}
	leave, err := s.enter()
	if err != nil {
		return w, err
	}
	defer leave()
	ids := slices.Concat(b.Start, b.Return, b.Requeue)
	for _, f := range b.Finish {
		ids = append(ids, f.ID)
	}
	token := b.Token
	if token == 0 {
		token = s.token
	}
	rows := make(map[int64]held)
	for _, id := range ids {
		c, ok := s.t.claims[id]
		r := s.t.rows[id]
		switch {
		case !ok || c.token != token:
			w.Lost[id] = "claim is gone"
		case r == nil:
			w.Lost[id] = "row was deleted"
			delete(s.t.claims, id)
		default:
			rows[id] = held{status: r.Status, manual: c.manual}
		}
	}
	var p plan
	p.make(b, rows, w.Lost)
	s.t.carryOut(b.At, &p)
	return w, nil
}

func (t *Table) carryOut(at int64, p *plan) {
	for _, id := range p.start {
		t.rows[id].Status, t.rows[id].TimeStarted = Running, at
	}
	for _, id := range p.back {
		t.rows[id].Status = Waiting
	}
	for _, id := range p.hand {
		t.rows[id].Status = Manual
	}
	for _, id := range p.requeue {
		t.rows[id].Status, t.rows[id].TimeStarted = Waiting, 0
	}
	for _, f := range p.finish {
		r, args := t.rows[f.ID], f.args()
		result := args[0].(string)
		r.Status, r.Result, r.TimeFinished = Done, &result, f.At
		r.Code, r.Signal, r.Stdout, r.Stderr = nil, nil, &f.Stdout, &f.Stderr
		if code, ok := args[1].(int); ok {
			r.Code = &code
		}
		if signal, ok := args[2].(string); ok {
			r.Signal = &signal
		}
	}
	for _, id := range p.free {
		delete(t.claims, id)
	}
}

func (s *Memory) Register(context.Context) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	s.token = rand.Int64N(1<<62) + 1
	s.t.owners[s.token] = &memoryOwner{
		Owner: Owner{Token: s.token, Name: s.name, Place: s.place, Beat: 1},
		lease: s.t.Now().Add(s.lease),
	}
	return nil
}

func (s *Memory) Renew(context.Context) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	o := s.t.owners[s.token]
	if o == nil || o.Dead {
		return ErrFenced
	}
	o.Beat++
	o.lease = s.t.Now().Add(s.lease)
	return nil
}

func (s *Memory) Leave(context.Context) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if o := s.t.owners[s.token]; o != nil {
		o.Dead = true
		if !s.t.claimsOf(s.token) {
			delete(s.t.owners, s.token)
		}
	}
	return nil
}

func (t *Table) claimsOf(token int64) bool {
	for _, c := range t.claims {
		if c.token == token {
			return true
		}
	}
	return false
}

func (s *Memory) Owners(context.Context) ([]Owner, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	var owners []Owner
	for token, o := range s.t.owners {
		if token != s.token {
			o.Expired = o.Dead || o.lease.Before(s.t.Now())
			owners = append(owners, o.Owner)
		}
	}
	for _, c := range s.t.claims {
		known := slices.ContainsFunc(owners, func(o Owner) bool { return o.Token == c.token })
		if s.t.owners[c.token] == nil && c.token != s.token && !known {
			owners = append(owners, Owner{Token: c.token, Expired: true, Dead: true})
		}
	}
	slices.SortFunc(owners, func(a, b Owner) int { return cmp.Compare(b.Token, a.Token) })
	return owners, nil
}

func (s *Memory) Settle(_ context.Context, o Owner, how Orphans) (Settled, error) {
	var sum Settled
	leave, err := s.enter()
	if err != nil {
		return sum, err
	}
	defer leave()
	own := s.t.owners[o.Token]
	if own != nil && !own.Dead && own.Beat != o.Beat {
		return sum, nil
	}
	var p plan
	targets := make(map[string]bool)
	for id, c := range s.t.claims {
		r := s.t.rows[id]
		if c.token != o.Token {
			continue
		}
		p.free = append(p.free, id)
		switch {
		case r == nil:
		case r.Status == Accepted && c.manual:
			p.hand = append(p.hand, id)
			sum.Returned++
		case r.Status == Accepted:
			p.back = append(p.back, id)
			targets[r.Target] = true
			sum.Returned++
		case r.Status == Running && how.Requeue:
			p.requeue = append(p.requeue, id)
			targets[r.Target] = true
			sum.Returned++
		case r.Status == Running:
			p.finish = append(p.finish, Final{ID: id, Code: -1, Stderr: how.Reason, At: how.At})
			sum.Failed++
		}
	}
	s.t.carryOut(0, &p)
	delete(s.t.owners, o.Token)
	sum.Targets = slices.Sorted(maps.Keys(targets))
	return sum, nil
}

// OutputRoom is that of a mediumtext.
func (s *Memory) OutputRoom() int64 { return 1<<24 - 1 }

func (s *Memory) Claims() bool { return true }

func (s *Memory) Token() int64 {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	return s.token
}

func (s *Memory) Close() error { return nil }

// ErrUnreachable is an error for Table.Fail.
var ErrUnreachable = errors.New("no route to the database")

var _ Store = (*Memory)(nil)
