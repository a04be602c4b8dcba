package schedule

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// missedAfter is the longest delay with which a due time does not count as missed.
	missedAfter = time.Second
	// maxPast and maxNext limit the past and future due times that a schedule lists.
	maxPast, maxNext = 10, 5
	// maxGaps bounds the gaps of a schedule. Beyond it, the shortest one is dropped, because that
	// loses the fewest due times.
	maxGaps = 16
)

// Schedule is a schedule with its progress. Stores keep its JSON.
type Schedule struct {
	Spec
	Created  time.Time `json:"created"`
	FromFile bool      `json:"from_file,omitempty"` // only the file may change it
	// SettledUntil is the last due time that has been settled.
	SettledUntil time.Time `json:"through"`
	// Gaps hold the due times before SettledUntil that were missed, in order. These due times count as
	// due again if the clock is set back, so no job is made twice and no job is lost.
	Gaps []missedSpan `json:"gaps,omitempty"`
	// LastJobID is the id of the job that was made last.
	LastJobID string `json:"before,omitempty"`
	// Queued is a due time whose job waits for the end of the previous job.
	Queued time.Time `json:"queued,omitzero"`
	// RecentRuns are the due times that were settled last, the newest first.
	RecentRuns []Run `json:"last,omitempty"`

	dueTimes dueTimes
}

// missedSpan is the time after From and before To. A zero From is set when the span is first used.
type missedSpan struct {
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
}

// Run is the result of a due time: a job, or the reason why there is none.
type Run struct {
	DueAt   time.Time `json:"due_at"`
	MadeAt  time.Time `json:"made_at,omitzero"`
	JobID   string    `json:"job_id,omitempty"`
	Skipped string    `json:"skipped,omitempty"` // SkipMissed, SkipRunning or SkipWaiting
}

// These are the reasons why no job was made.
const (
	SkipMissed  = "missed"  // no daemon was running, and the due time was not to be caught up
	SkipRunning = "running" // the previous job had not ended
	SkipWaiting = "waiting" // like SkipRunning, but an earlier due time was already queued
)

// skipReasons explains each reason to people.
var skipReasons = map[string]string{
	SkipMissed:  "no daemon was running at the due time, and catch_up and window_ms do not allow the job to be made later",
	SkipRunning: "the previous job had not ended, and overlap is skip",
	SkipWaiting: "the previous job had not ended, another due time waits for that, and overlap is queue",
}

// New returns a schedule that begins now.
func New(spec Spec, now time.Time) (*Schedule, error) {
	s := &Schedule{Spec: spec, Created: truncateToMS(now)}
	s.startAt(now)
	return s, s.parseTimes()
}

// Decode parses the stored form.
func Decode(text []byte) (*Schedule, error) {
	s := new(Schedule)
	old := struct {
		Gap missedSpan `json:"gap"` // earlier versions stored a single gap
	}{}
	err := json.Unmarshal(text, s)
	if err == nil {
		err = json.Unmarshal(text, &old)
	}
	if s.Gaps == nil && old.Gap != (missedSpan{}) {
		s.Gaps = []missedSpan{old.Gap}
	}
	if err == nil {
		err = s.check()
	}
	if err == nil {
		err = s.parseTimes()
	}
	return s, err
}

// Encode returns the stored form.
func (s *Schedule) Encode() []byte { return mustEncode(s) }

func (s *Schedule) parseTimes() error {
	zone, err := loadZone(s.Zone)
	if err == nil {
		s.dueTimes, err = parseCron(s.Cron, zone, s.Created)
	}
	return err
}

// startAt makes the schedule start now, so that no earlier time is due. If the clock is set back
// later, the schedule starts at the time that the clock then shows.
func (s *Schedule) startAt(now time.Time) {
	s.SettledUntil, s.Gaps, s.Queued = now, []missedSpan{{To: now}}, time.Time{}
}

// ErrFromFile means that a schedule is in the file of schedules.
var ErrFromFile = errors.New("the schedule is in the file that --schedules names, and can only be changed there")

// Put returns the schedule that results when a client or, if fromFile is set, the file of schedules
// sets old to spec. old is nil if there is no schedule; Put returns old if nothing changes. If the
// due times have changed, or the schedule was paused or had expired, the new schedule starts from
// now; otherwise it still makes up for due times that were missed before. The error is ErrFromFile,
// or says what is wrong with spec.
func Put(old *Schedule, spec Spec, fromFile bool, now time.Time) (*Schedule, error) {
	switch {
	case old == nil:
		s, err := New(spec, now)
		s.FromFile = fromFile
		return s, err
	case old.FromFile && !fromFile:
		return nil, ErrFromFile
	case old.FromFile == fromFile && old.Equal(&spec):
		return old, nil
	}
	n := *old
	n.Spec, n.FromFile = spec, fromFile
	if spec.Cron != old.Cron || spec.Zone != old.Zone || old.Paused || old.isExpired(now) {
		n.startAt(now)
	}
	return &n, n.parseTimes()
}

// isExpired reports whether now is after Until. Then no more jobs are due.
func (s *Schedule) isExpired(now time.Time) bool { return !s.Until.IsZero() && now.After(s.Until) }

// gapAfter returns the index of the first gap that ends after a moment; len(s.Gaps) if there is none.
func (s *Schedule) gapAfter(t time.Time) int {
	i, _ := slices.BinarySearchFunc(s.Gaps, t, func(g missedSpan, t time.Time) int {
		if g.To.After(t) {
			return 1
		}
		return -1
	})
	return i
}

// unsettled returns the bounds of the due times that are not settled: they are after from, and not
// after to.
func (s *Schedule) unsettled(now time.Time) (from, to time.Time) {
	from, to = s.SettledUntil, now
	if i := s.gapAfter(now); i < len(s.Gaps) {
		if from = s.Gaps[i].From; from.IsZero() {
			from = now
		}
	}
	if s.isExpired(to) {
		to = s.Until
	}
	return from, to
}

// WakeTime returns the first due time that is not settled, which may be before now, or zero if
// there is none. The number is valid until the clock is set back. It leaves out a due time that is
// queued.
func (s *Schedule) WakeTime(now time.Time) time.Time {
	if s.Paused {
		return time.Time{}
	}
	from, _ := s.unsettled(now)
	return s.firstAfter(from)
}

// firstAfter returns the first unsettled due time after a moment; zero if there is none.
func (s *Schedule) firstAfter(from time.Time) time.Time {
	t := s.dueTimes.next(from)
	for !t.IsZero() && !t.After(s.SettledUntil) {
		from = s.SettledUntil
		if i := s.gapAfter(t); i < len(s.Gaps) {
			if from = s.Gaps[i].From; t.After(from) {
				break
			}
		}
		t = s.dueTimes.next(from)
	}
	if !t.IsZero() && s.isExpired(t) {
		return time.Time{}
	}
	return t
}

// NextTimes returns the next due times.
func (s *Schedule) NextTimes(now time.Time) []time.Time {
	list := make([]time.Time, 0, maxNext)
	from, _ := s.unsettled(now)
	if s.Paused {
		return list
	}
	for t := s.firstAfter(latest(from, now)); !t.IsZero() && len(list) < maxNext; t = s.firstAfter(t) {
		list = append(list, t)
	}
	return list
}

// Plan is the result of Settle.
type Plan struct {
	// Made are the jobs to make, with their due times and ids.
	Made []Run
	// Skipped is the number of due times that make no job, by reason.
	Skipped map[string]int
	// HasChanged reports that the schedule has changed, HasMore that it must be settled again at
	// once.
	HasChanged, HasMore bool
}

// Conditions is the state of the door that Settle needs.
type Conditions struct {
	Now time.Time
	// WatchedSince is the time since which daemons have looked for due jobs without a break (see
	// Watch). Earlier due times count as missed.
	WatchedSince time.Time
	// Room is the number of jobs that may be made at once.
	Room int
	// IsLive reports whether a job has not ended. JobID returns the id of a due time's job.
	IsLive func(id string) bool
	JobID  func(due time.Time) string
}

// Settle decides on all due times up to now, and records that in the schedule. The plan must be
// carried out and the schedule stored in one transaction, or not at all.
func (s *Schedule) Settle(conditions Conditions) Plan {
	plan := Plan{Skipped: make(map[string]int)}
	if s.Paused {
		return plan
	}
	live := sync.OnceValue(func() bool { return s.LastJobID != "" && conditions.IsLive(s.LastJobID) })
	if !s.Queued.IsZero() && !live() {
		s.makeJob(&plan, conditions, s.Queued)
		s.Queued = time.Time{}
	}
	s.Gaps = slices.Clone(s.Gaps)
	at := s.gapAfter(conditions.Now)
	if at < len(s.Gaps) && s.Gaps[at].From.IsZero() {
		// The clock may be set back further, to times before this.
		start := truncateToMS(conditions.Now)
		s.Gaps[at].From, plan.HasChanged = start, true
		s.Gaps = slices.Insert(s.Gaps, at, missedSpan{To: start})
		at++
	}
	// due makes, queues or skips the job of a due time that was not missed.
	due := func(t time.Time) {
		busy := s.Overlap != overlapAllow && (len(plan.Made) > 0 || live())
		switch {
		case !busy:
			s.makeJob(&plan, conditions, t)
		case s.Overlap == overlapQueue && s.Queued.IsZero():
			s.Queued, plan.HasChanged = t, true
		case s.Overlap == overlapQueue:
			s.recordRun(&plan, Run{DueAt: t, Skipped: SkipWaiting})
		default:
			s.recordRun(&plan, Run{DueAt: t, Skipped: SkipRunning})
		}
	}
	// The end of a gap may have passed since the last look.
	for i := 0; i < at; i++ {
		gap := s.Gaps[i]
		end := gap.To.Add(-1)
		if s.isExpired(end) {
			end = s.Until
		}
		gapStart := latest(gap.From, conditions.WatchedSince.Add(-missedAfter))
		if gap.From.IsZero() || !gapStart.Before(end) {
			continue
		}
		list := s.dueBetween(gapStart, end)
		addCount := min(len(list), conditions.Room-len(plan.Made))
		for _, t := range list[:addCount] {
			due(t)
		}
		if addCount > 0 {
			s.Gaps[i].From = list[addCount-1]
			firstGap := s.insertGap(i, missedSpan{gap.From, list[0]})
			i, at = i+firstGap, at+firstGap
		}
		if plan.HasMore = addCount < len(list); plan.HasMore {
			return plan
		}
	}
	from, to := s.unsettled(conditions.Now)
	onTimeFrom := latest(from, conditions.WatchedSince.Add(-missedAfter))
	if onTimeFrom.After(to) {
		onTimeFrom = to
	}
	missed := s.dueBetween(from, onTimeFrom)
	skipped := len(missed)
	switch s.CatchUp {
	case catchUpAll:
		oldest := conditions.Now.Add(-time.Duration(s.WindowMS) * time.Millisecond)
		skipped, _ = slices.BinarySearchFunc(missed, oldest, time.Time.Compare)
	case catchUpOne:
		oldest := conditions.Now.Add(-time.Duration(s.WindowMS) * time.Millisecond)
		if n := len(missed); n > 0 && !missed[n-1].Before(oldest) {
			skipped = n - 1
		}
	}
	for _, t := range missed[:skipped] {
		s.recordRun(&plan, Run{DueAt: t, Skipped: SkipMissed})
	}
	settled := from
	if skipped > 0 {
		settled = missed[skipped-1]
	}
	rest := slices.Concat(missed[skipped:], s.dueBetween(onTimeFrom, to))
	var first time.Time // the first one that is not missed
	for _, t := range rest {
		if plan.HasMore = len(plan.Made) >= conditions.Room; plan.HasMore {
			break
		}
		first, settled = cmp.Or(first, t), t
		due(t)
	}
	if !settled.After(from) {
		return plan
	}
	if at < len(s.Gaps) {
		s.Gaps[at].From = settled
	} else {
		s.SettledUntil = settled
	}
	// If more than MaxCatchUp times were missed, the first of them are not even recorded as
	// skipped, so their number does not tell whether there is a gap.
	s.insertGap(at, missedSpan{from, cmp.Or(first, settled.Add(1))})
	if len(s.Gaps) > maxGaps {
		short := slices.MinFunc(s.Gaps, func(a, b missedSpan) int { return cmp.Compare(a.To.Sub(a.From), b.To.Sub(b.From)) })
		s.Gaps = slices.DeleteFunc(s.Gaps, func(gap missedSpan) bool { return gap == short })
	}
	return plan
}

// insertGap inserts a gap before gap i, unless no due time is in it. It drops the old gap i if no
// due time is left in the old gap. It returns by how many gaps the list has grown.
func (s *Schedule) insertGap(i int, gap missedSpan) int {
	isOver := func(g missedSpan) bool { return !g.From.IsZero() && !s.dueTimes.next(g.From).Before(g.To) }
	before := len(s.Gaps)
	if i < len(s.Gaps) && isOver(s.Gaps[i]) {
		s.Gaps = slices.Delete(s.Gaps, i, i+1)
	}
	if !isOver(gap) {
		s.Gaps = slices.Insert(s.Gaps, i, gap)
	}
	return len(s.Gaps) - before
}

func (s *Schedule) makeJob(plan *Plan, conditions Conditions, due time.Time) {
	run := Run{DueAt: due, MadeAt: truncateToMS(conditions.Now), JobID: conditions.JobID(due)}
	plan.Made = append(plan.Made, run)
	s.LastJobID = run.JobID
	s.recordRun(plan, run)
}

func (s *Schedule) recordRun(plan *Plan, run Run) {
	plan.HasChanged = true
	if run.Skipped != "" {
		plan.Skipped[run.Skipped]++
	}
	s.RecentRuns = append([]Run{run}, s.RecentRuns[:min(len(s.RecentRuns), maxPast-1)]...)
}

// dueBetween returns the latest due times after from and not after to, at most MaxCatchUp. It goes
// back in steps that double, because years may lie between from and to.
func (s *Schedule) dueBetween(from, to time.Time) []time.Time {
	for span := time.Hour; ; span *= 2 {
		start := latest(from, to.Add(-span))
		var list []time.Time
		for t := s.dueTimes.next(start); !t.IsZero() && !t.After(to); t = s.dueTimes.next(t) {
			list = append(list, t)
		}
		if len(list) >= MaxCatchUp || start.Equal(from) {
			return list[max(0, len(list)-MaxCatchUp):]
		}
	}
}

// View is a schedule as clients see it.
type View struct {
	Name string `json:"name"`
	Spec
	Until     *string `json:"until"`
	CreatedAt *string `json:"created_at"`
	FromFile  bool    `json:"from_file"`
	// QueuedAt is the due time whose job waits for the end of the previous job.
	QueuedAt *string   `json:"queued_at"`
	Next     []*string `json:"next"`
	Last     []RunView `json:"last"`
}

// RunView is a Run as clients see it. Why says why it was skipped.
type RunView struct {
	DueAt   *string `json:"due_at"`
	MadeAt  *string `json:"made_at"`
	JobID   *string `json:"job_id"`
	Skipped *string `json:"skipped"`
	Why     *string `json:"why"`
}

// View returns the schedule as clients see it, with the given name.
func (s *Schedule) View(name string, now time.Time) View {
	v := View{
		Name: name, Spec: s.Spec, Until: formatTime(s.Until), CreatedAt: formatTime(s.Created), FromFile: s.FromFile,
		QueuedAt: formatTime(s.Queued), Next: []*string{}, Last: []RunView{},
	}
	for _, t := range s.NextTimes(now) {
		v.Next = append(v.Next, formatTime(t))
	}
	for _, r := range s.RecentRuns {
		v.Last = append(v.Last, RunView{formatTime(r.DueAt), formatTime(r.MadeAt), nilIfEmpty(r.JobID), nilIfEmpty(r.Skipped), nilIfEmpty(skipReasons[r.Skipped])})
	}
	return v
}

// formatTime returns a time in the form that answers have; nil for none.
func formatTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return nilIfEmpty(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

func nilIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func truncateToMS(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
