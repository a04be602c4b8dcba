package fleetprobe

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// book is the prober's own ledger: the submitted jobs, their runs, and their ends.
type book struct {
	mu           sync.Mutex
	jobs         map[string]*jobRecord // by token
	faults       []string
	ends         map[string]int  // number of ended jobs of living submitters, by kind of end
	requeueTimes []time.Duration // for each job lent to a lost broker, the time from the loss to its next run
	stuckJobs    int             // lent jobs of a lost broker that did not run again before it came back
	runs         int
	repeatedRuns int // runs that were not the first of their job
}

// plan is a job's body: what its workers do with it.
type plan struct {
	Token string `json:"token"`
	Do    string `json:"do"` // answer, fail, release or report
	MS    int    `json:"ms"` // how long the run takes
}

// jobRecord is what the book knows of a job.
type jobRecord struct {
	plan
	typ, body     string
	home          *session
	retries       int
	hasDeadline   bool
	timeout       int
	runs          int
	releases      int
	progressCount int
	currentRuns   map[*broker]int // current runs, by the broker of their worker
	lostAt        time.Time       // when the broker to which it was lent was lost
	end           string          // "" while it has not ended
	acked         bool            // its broker has accepted it
	isVoid        bool            // its submitter was lost
}

func newBook() *book { return &book{jobs: map[string]*jobRecord{}, ends: map[string]int{}} }

func (b *book) addFault(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.appendFault(format, args...)
}

func (b *book) appendFault(format string, args ...any) {
	if len(b.faults) < 50 {
		b.faults = append(b.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func (b *book) add(e *jobRecord) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.currentRuns = map[*broker]int{}
	b.jobs[e.Token] = e
}

// recordAck records the ok of a submit.
func (b *book) recordAck(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.jobs[token].acked = true
}

// recordRefusal removes a job that was never accepted.
func (b *book) recordRefusal(token string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.jobs[token]; e.runs > 0 {
		b.appendFault("%s was refused, and has run", token)
	}
	delete(b.jobs, token)
}

// recordRun records that a worker at a broker got a job.
func (b *book) recordRun(f frame, at *broker) (*jobRecord, bool) {
	var p plan
	err := json.Unmarshal(f.Body, &p)
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.jobs[p.Token]
	if err != nil || e == nil || string(f.Body) != e.body || f.ID != e.Token || f.Type != e.typ {
		b.appendFault("%s handed out what nobody submitted: %s", at.name, f)
		return nil, false
	}
	b.runs++
	e.runs++
	e.currentRuns[at]++
	if e.runs > 1 {
		b.repeatedRuns++
	}
	if e.runs > 1+e.retries+e.releases {
		b.appendFault("%s, with %d retries and %d releases, runs for the %d. time, at %s", e.Token, e.retries, e.releases, e.runs, at.name)
	}
	if !e.lostAt.IsZero() {
		b.requeueTimes = append(b.requeueTimes, time.Since(e.lostAt))
		e.lostAt = time.Time{}
	}
	return e, true
}

// endRun records the end of a run as its worker sees it.
func (b *book) endRun(e *jobRecord, at *broker, released bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.currentRuns[at]--
	if released {
		e.releases++
	}
}

// recordLoss records that a broker is lost now: jobs lent to it must run elsewhere.
func (b *book) recordLoss(at *broker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.jobs {
		if e.currentRuns[at] > 0 && e.end == "" && !e.isVoid && e.home.broker != at && e.retries >= 10 && e.typ != "at-"+at.name {
			e.lostAt = time.Now()
		}
	}
}

// endLoss ends the measurement that recordLoss began, before the broker comes back.
func (b *book) endLoss() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.jobs {
		if !e.lostAt.IsZero() {
			e.lostAt = time.Time{}
			b.stuckJobs++
		}
	}
}

// recordEnd records a frame that ends a job, or the ok of its cancel.
func (b *book) recordEnd(s *session, token, kind string, f frame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.jobs[token]
	switch {
	case e == nil || e.home != s:
		b.appendFault("%s: the end of a job that was not submitted there: %s", s.broker.name, f)
		return
	case e.end != "":
		b.appendFault("%s ended by %s, and then by %s: %s", token, e.end, kind, f)
		return
	}
	var answer plan
	switch {
	case kind == "answered" && (json.Unmarshal(f.Body, &answer) != nil || answer.Token != token || e.runs == 0):
		b.appendFault("%s, run %d times, has the answer %s", token, e.runs, f)
	case kind == "job_failed" && e.Do == "answer" && e.retries >= 10 && e.timeout == 0:
		b.appendFault("%s failed after %d of %d runs: %s", token, e.runs, 1+e.retries, f)
	case kind == "expired" && !e.hasDeadline:
		b.appendFault("%s expired without a deadline: %s", token, f)
	}
	e.end, e.lostAt = kind, time.Time{}
	b.ends[kind]++
	s.ends[kind]++
}

// voidJobs marks the unfinished jobs of a lost submitter as void. It returns the number of these
// jobs, and the tokens of the jobs that the broker had accepted.
func (b *book) voidJobs(s *session) (taken []string, voidCount int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.jobs {
		if e.home == s && e.end == "" {
			e.isVoid = true
			voidCount++
			if e.acked {
				taken = append(taken, e.Token)
			}
		}
	}
	return taken, voidCount
}

// openJobs returns the jobs of living submitters that have not ended.
func (b *book) openJobs() (tokens []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.jobs {
		if e.end == "" && !e.isVoid {
			tokens = append(tokens, e.Token)
		}
	}
	slices.Sort(tokens)
	return tokens
}

func (b *book) summary() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	voidCount := 0
	for _, e := range b.jobs {
		if e.isVoid {
			voidCount++
		}
	}
	slices.Sort(b.requeueTimes)
	moves := "none"
	if n := len(b.requeueTimes); n > 0 {
		moves = fmt.Sprintf("%d, median %s, worst %s", n, b.requeueTimes[n/2].Round(time.Millisecond), b.requeueTimes[n-1].Round(time.Millisecond))
	}
	return fmt.Sprintf("%d jobs: %v, %d of submitters that went; %d runs, %d of them again; lent to a killed broker, and run elsewhere: %s; not before it came back: %d",
		len(b.jobs), b.ends, voidCount, b.runs, b.repeatedRuns, moves, b.stuckJobs)
}
