// Package storetest contains a table of jobs in memory, which stands for the database in tests of
// code that uses a Store.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"gloom/cmd/jobd/store"
)

// Table is a table of jobs in memory, with its companion table. It behaves like the real one.
type Table struct {
	// Now is the database's clock.
	Now func() time.Time

	mu      sync.Mutex // guards the following
	rows    map[int64]*Record
	claims  map[int64]claim
	owners  map[int64]*memoryOwner
	callErr error
}

// Record is a row of a Table. Pointers are nil where the column is NULL.
type Record struct {
	store.Row
	Status         string
	TimeStarted    int64
	TimeFinished   int64
	Result, Signal *string
	Code           *int
	Stdout, Stderr *string
}

// claim is a claim on a row.
type claim struct {
	token    int64
	isManual bool
}

// memoryOwner is the record of an incarnation and its lease.
type memoryOwner struct {
	store.Owner
	expiresAt time.Time
}

// NewTable returns an empty table on the system's clock.
func NewTable() *Table {
	return &Table{Now: time.Now, rows: make(map[int64]*Record), claims: make(map[int64]claim), owners: make(map[int64]*memoryOwner)}
}

// Put adds or replaces a row.
func (t *Table) Put(r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows[r.ID] = &r
}

// Get returns a copy of a row.
func (t *Table) Get(id int64) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if r == nil {
		return Record{}, false
	}
	return *r, true
}

// Delete removes a row.
func (t *Table) Delete(id int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, id)
}

// Forget removes an incarnation, and leaves its claims.
func (t *Table) Forget(token int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owners, token)
}

// SetStatus changes a row's status behind the daemons' backs.
func (t *Table) SetStatus(id int64, status string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows[id].Status = status
}

// SetError makes all calls fail with err, as if the database were away, until it is called with nil.
func (t *Table) SetError(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.callErr = err
}

// ClaimCount returns how many rows are claimed, by anyone.
func (t *Table) ClaimCount() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.claims)
}

// Memory is a Store on a Table.
type Memory struct {
	table   *Table
	name    string
	lease   time.Duration
	process store.Process

	token int64 // guarded by the table's lock
}

// Open returns a Store on the table, for a daemon of that name and process.
func (t *Table) Open(name string, lease time.Duration, process store.Process) *Memory {
	return &Memory{table: t, name: name, lease: lease, process: process}
}

func (s *Memory) lock() (func(), error) {
	s.table.mu.Lock()
	if s.table.callErr != nil {
		err := s.table.callErr
		s.table.mu.Unlock()
		return nil, &store.AwayError{Err: err}
	}
	return s.table.mu.Unlock, nil
}

// Accept implements store.Store.
func (s *Memory) Accept(_ context.Context, requests []store.AcceptRequest, limit int) (page store.Page, err error) {
	unlock, err := s.lock()
	if err != nil {
		return page, err
	}
	defer unlock()
	if o := s.table.owners[s.token]; o == nil || o.IsSettling {
		return page, store.ErrFenced
	}
	if limit <= 0 {
		limit = 1000
	}
	byID := func(a, b store.Row) int { return cmp.Compare(a.ID, b.ID) }
	truncated := make(map[string]bool)
	for _, want := range requests {
		var rows []store.Row
		for _, r := range s.table.rows {
			if r.Status == store.Waiting && r.Target == want.Target {
				rows = append(rows, r.Row)
			}
		}
		slices.SortFunc(rows, byID)
		maxRows := min(want.Rows, limit)
		truncated[want.Target] = len(rows) >= maxRows
		rows = rows[:min(limit, len(rows))]
		slices.SortStableFunc(rows, func(a, b store.Row) int { return cmp.Compare(b.Priority, a.Priority) })
		page.Rows = append(page.Rows, rows[:min(maxRows, len(rows))]...)
	}
	slices.SortFunc(page.Rows, byID)
	for _, row := range page.Rows[min(limit, len(page.Rows)):] {
		truncated[row.Target] = true
	}
	page.Rows = page.Rows[:min(limit, len(page.Rows))]
	for _, want := range requests {
		if truncated[want.Target] {
			page.MoreTargets = append(page.MoreTargets, want.Target)
		}
	}
	for _, want := range requests {
		for i := range page.Rows {
			row := &page.Rows[i]
			if _, claimed := s.table.claims[row.ID]; row.Target == want.Target && want.MaxBegin > 0 {
				if want.MaxBegin--; !claimed {
					row.StartedAt = s.table.Now().Unix()
				}
			}
		}
	}
	for _, row := range page.Rows {
		s.accept(row.ID, false)
		if row.StartedAt != 0 {
			s.table.rows[row.ID].Status, s.table.rows[row.ID].TimeStarted = store.Running, row.StartedAt
		}
	}
	return page, nil
}

func (s *Memory) accept(id int64, manual bool) {
	s.table.rows[id].Status = store.Accepted
	s.table.claims[id] = claim{token: s.token, isManual: manual}
}

// AcceptManual implements store.Store.
func (s *Memory) AcceptManual(_ context.Context, ids []int64, serves func(string) bool) ([]store.ManualResult, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if o := s.table.owners[s.token]; o == nil || o.IsSettling {
		return nil, store.ErrFenced
	}
	requests := make([]store.ManualResult, len(ids))
	for i, id := range ids {
		r := s.table.rows[id]
		requests[i].Row.ID = id
		if r == nil {
			continue
		}
		requests[i] = store.ManualResult{Row: r.Row, WasFound: true, Status: r.Status}
		switch {
		case r.Status == store.Manual && serves(r.Target):
			requests[i].WasAccepted, requests[i].Status = true, ""
			s.accept(id, true)
		case r.Status == store.Manual || r.Status == store.Waiting:
			r.Status = store.Ignored
		}
	}
	return requests, nil
}

// Resolve implements store.Store.
func (s *Memory) Resolve(context.Context) ([]store.Row, error) { return nil, nil }

// Write implements store.Store.
func (s *Memory) Write(_ context.Context, b store.Batch) (store.WriteResult, error) {
	w := store.WriteResult{LostRows: make(map[int64]string), FailedRows: make(map[int64]error)}
	unlock, err := s.lock()
	if err != nil {
		return w, err
	}
	defer unlock()
	token := b.Token
	if token == 0 {
		token = s.token
	}
	// owned returns the row if it is claimed and in a state that allows the change.
	owned := func(id int64, states ...string) *Record {
		r := s.table.rows[id]
		switch c, claimed := s.table.claims[id]; {
		case !claimed || c.token != token:
			w.LostRows[id] = "claim is gone"
		case r == nil:
			w.LostRows[id] = "row was deleted"
			delete(s.table.claims, id)
		case slices.Contains(states, r.Status):
			return r
		default:
			if r.Status == store.Accepted {
				w.LostRows[id] = "row was made waiting again, or replaced, and this daemon has accepted it anew"
				break
			}
			w.LostRows[id] = "status was set to " + r.Status
			delete(s.table.claims, id)
		}
		return nil
	}
	for _, id := range b.StartRows {
		if r := owned(id, store.Accepted, store.Running); r != nil {
			r.Status, r.TimeStarted = store.Running, b.StartedAt
		}
	}
	for _, id := range b.ReturnRows {
		if r := owned(id, store.Accepted); r != nil {
			s.table.giveBackRow(r)
		}
	}
	for _, id := range b.RequeueRows {
		if r := owned(id, store.Running); r != nil {
			s.table.giveBackRow(r)
		}
	}
	for _, f := range b.FinishRows {
		r := owned(f.ID, store.Running)
		if x := s.table.rows[f.ID]; w.LostRows[f.ID] == "claim is gone" && x != nil && x.Status == store.Done && x.Stderr != nil && *x.Stderr == store.DeathReason(s.name) {
			delete(w.LostRows, f.ID)
			r = x
		}
		if r != nil {
			s.table.endRow(r, f)
		}
	}
	return w, nil
}

// giveBackRow makes a row wait again, or makes it manual again if it was claimed for a manual run.
func (t *Table) giveBackRow(r *Record) {
	if r.Status == store.Running {
		r.TimeStarted = 0
	}
	r.Status = store.Waiting
	if t.claims[r.ID].isManual {
		r.Status = store.Manual
	}
	delete(t.claims, r.ID)
}

func (t *Table) endRow(r *Record, f store.Result) {
	result := "fail"
	if f.OK {
		result = "ok"
	}
	r.Status, r.Result, r.TimeFinished = store.Done, &result, f.At
	r.Code, r.Signal, r.Stdout, r.Stderr = nil, nil, &f.Stdout, &f.Stderr
	if f.Code >= 0 {
		r.Code = &f.Code
	}
	if f.Signal != "" {
		r.Signal = &f.Signal
	}
	delete(t.claims, r.ID)
}

// Register implements store.Store.
func (s *Memory) Register(context.Context) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	s.token = rand.Int64N(1<<62) + 1
	s.table.owners[s.token] = &memoryOwner{
		Owner:     store.Owner{Token: s.token, Name: s.name, Process: s.process, Heartbeat: 1},
		expiresAt: s.table.Now().Add(s.lease),
	}
	return nil
}

// Renew implements store.Store.
func (s *Memory) Renew(context.Context) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	o := s.table.owners[s.token]
	if o == nil || o.IsSettling {
		return store.ErrFenced
	}
	o.Heartbeat++
	o.expiresAt = s.table.Now().Add(s.lease)
	return nil
}

// Leave implements store.Store.
func (s *Memory) Leave(context.Context) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if o := s.table.owners[s.token]; o != nil {
		o.IsSettling = true
		if !s.table.claimsOf(s.token) {
			delete(s.table.owners, s.token)
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

// Owners implements store.Store.
func (s *Memory) Owners(context.Context) ([]store.Owner, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	var owners []store.Owner
	for token, o := range s.table.owners {
		if token != s.token {
			if o.LeaseLeft = o.expiresAt.Sub(s.table.Now()); o.IsSettling {
				o.LeaseLeft = 0
			}
			owners = append(owners, o.Owner)
		}
	}
	for _, c := range s.table.claims {
		known := slices.ContainsFunc(owners, func(o store.Owner) bool { return o.Token == c.token })
		if s.table.owners[c.token] == nil && c.token != s.token && !known {
			owners = append(owners, store.Owner{Token: c.token, LeaseLeft: s.lease})
		}
	}
	slices.SortFunc(owners, func(a, b store.Owner) int { return cmp.Compare(b.Token, a.Token) })
	return owners, nil
}

// Settle implements store.Store.
func (s *Memory) Settle(_ context.Context, o store.Owner, orphans store.OrphanPolicy) (store.SettleResult, error) {
	var sum store.SettleResult
	unlock, err := s.lock()
	if err != nil {
		return sum, err
	}
	defer unlock()
	claims := s.table.owners[o.Token]
	if claims != nil && !claims.IsSettling && claims.Heartbeat != o.Heartbeat {
		return sum, nil
	}
	sum = s.table.settle(o.Token, orphans, func(id int64) bool { return !slices.Contains(orphans.Except, id) })
	if sum.Incomplete = len(orphans.Except) > 0; !sum.Incomplete {
		delete(s.table.owners, o.Token)
	}
	return sum, nil
}

// OwnClaims implements store.Store.
func (s *Memory) OwnClaims(context.Context) (ids []int64, err error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for id, c := range s.table.claims {
		if c.token == s.token {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// SettleOwnClaims implements store.Store.
func (s *Memory) SettleOwnClaims(_ context.Context, ids []int64, orphans store.OrphanPolicy) (sum store.SettleResult, err error) {
	unlock, err := s.lock()
	if err != nil {
		return sum, err
	}
	defer unlock()
	return s.table.settle(s.token, orphans, func(id int64) bool { return slices.Contains(ids, id) }), nil
}

// settle frees rows that have claims with a token.
func (t *Table) settle(token int64, orphans store.OrphanPolicy, selects func(id int64) bool) (sum store.SettleResult) {
	targets := make(map[string]bool)
	sum.FailedRows = make(map[int64]string)
	for id, c := range t.claims {
		if c.token != token || !selects(id) {
			continue
		}
		switch r := t.rows[id]; {
		case r == nil:
			delete(t.claims, id)
		case r.Status == store.Running && !orphans.Requeue:
			t.endRow(r, store.Result{ID: id, Code: -1, Stderr: orphans.Reason, At: orphans.FinishedAt})
			sum.FailedRows[id] = r.Target
		case r.Status == store.Accepted, r.Status == store.Running:
			if t.giveBackRow(r); r.Status == store.Waiting {
				targets[r.Target] = true
			}
			sum.RequeuedCount++
		default:
			delete(t.claims, id)
		}
	}
	sum.Targets = slices.Sorted(maps.Keys(targets))
	return sum
}

// OutputRoom returns the size of a mediumtext.
func (s *Memory) OutputRoom() int64 { return 1<<24 - 1 }

// HasClaimsTable implements store.Store.
func (s *Memory) HasClaimsTable() bool { return true }

// Token implements store.Store.
func (s *Memory) Token() int64 {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.token
}

// Close implements store.Store.
func (s *Memory) Close() error { return nil }

// ErrUnreachable is an error for Table.SetError.
var ErrUnreachable = errors.New("no route to the database")

var _ store.Store = (*Memory)(nil)
