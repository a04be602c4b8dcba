package master

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/jq-master/job"
)

const (
	// maxMadeJobs is the maximum number of jobs that a step makes for one schedule. When a step has
	// made maxStepRecords jobs or maxMadeBytes bytes, it leaves the other schedules to the next step.
	maxMadeJobs  = 100
	maxMadeBytes = 8 << 20
)

// schedules holds all schedules of the machine.
type schedules struct {
	byName  map[string]*scheduled
	watch   schedule.Watch
	bytes   int64
	queued  map[string]uint64 // number of due times that were handled, by result
	readJob func(json.RawMessage) (*NewJob, error)
}

// scheduled is a schedule and its state in the machine.
type scheduled struct {
	*schedule.Schedule // the schedule as it is stored; it is replaced, never changed; nil: not stored yet
	job                *NewJob
	wakeAt             int64 // wall time of the next due time or retry
	writing            bool  // the schedule is being written
	waiting            waitList
}

// ScheduleView is a schedule with its name.
type ScheduleView struct {
	Name string
	*schedule.Schedule
}

func newSchedules() *schedules {
	return &schedules{byName: make(map[string]*scheduled), queued: make(map[string]uint64)}
}

// set replaces a schedule by the one that was written; nil drops it.
func (l *schedules) set(name string, s *scheduled, now *schedule.Schedule, n *NewJob, wall time.Time) {
	if s.Schedule != nil {
		l.bytes -= int64(len(s.Job) + len(s.job.Argument))
	}
	if s.Schedule, s.job = now, n; now == nil {
		delete(l.byName, name)
		return
	}
	l.byName[name] = s
	l.bytes += int64(len(s.Job) + len(n.Argument))
	s.wakeAt = never
	if w := now.WakeTime(wall); !w.IsZero() {
		s.wakeAt = w.UnixMilli()
	}
}

// scheduleTime returns the time with which due times are compared.
func (m *machine) scheduleTime() time.Time { return time.UnixMilli(m.hostTime).UTC() }

func (m *machine) loadSchedule(name string, text []byte) error {
	s, err := schedule.Decode(text)
	if err != nil {
		return err
	}
	n, err := m.schedules.readJob(s.Job)
	if err != nil {
		return err
	}
	m.schedules.set(name, &scheduled{}, s, n, m.scheduleTime())
	return nil
}

// changeSchedule replaces a schedule by the result of change. change gets nil if the schedule does
// not exist, returns nil to drop it, and returns its argument to change nothing.
func (m *machine) changeSchedule(name string, n *NewJob, change func(*schedule.Schedule) (*schedule.Schedule, error), reply func(error)) {
	s := m.schedules.byName[name]
	switch {
	case m.awayErr != nil:
		reply(m.storeAway())
		return
	case s != nil && s.writing:
		s.waiting = append(s.waiting, func() { m.changeSchedule(name, n, change, reply) })
		return
	case s == nil:
		s = &scheduled{}
	}
	now, err := change(s.Schedule)
	if err == nil && n != nil && now != s.Schedule {
		if err = m.checkRoom(0, int64(len(now.Job)+len(n.Argument))); s.Schedule == nil && len(m.schedules.byName) >= schedule.MaxSchedules {
			err = overloaded("there are %d schedules, and no more are allowed", schedule.MaxSchedules)
		}
	}
	if err != nil || now == s.Schedule {
		reply(err)
		return
	}
	m.schedules.byName[name] = s // other changes of the schedule then wait for this one
	m.writeSchedule(name, s, now, n, nil, func(err error) { reply(m.refusal(err)) })
}

// writeSchedule stores a schedule with its due jobs, or drops it if now is nil.
func (m *machine) writeSchedule(name string, s *scheduled, now *schedule.Schedule, n *NewJob, jobs []*job.Job, onDone func(error)) {
	s.writing = true
	onWritten := func(err error) {
		m.env.run(func() {
			s.writing = false
			if err == nil || s.Schedule == nil {
				if err != nil {
					now = nil
				}
				m.schedules.set(name, s, now, n, m.scheduleTime())
			}
			onDone(err)
			s.waiting.run(func() bool { return s.writing })
		})
	}
	var text []byte
	if now != nil {
		text = now.Encode()
	}
	m.runAfterStep(func() { m.env.store.PutSchedule(name, text, jobs, onWritten) })
}

func (m *machine) putSchedule(name string, spec schedule.Spec, n *NewJob, fromFile bool, reply func(error)) {
	m.changeSchedule(name, n, func(old *schedule.Schedule) (*schedule.Schedule, error) {
		s, err := schedule.Put(old, spec, fromFile, m.scheduleTime())
		if errors.Is(err, schedule.ErrFromFile) {
			err = errFromFile
		}
		return s, err
	}, reply)
}

func (m *machine) dropSchedule(name string, fromFile bool, reply func(error)) {
	m.changeSchedule(name, nil, func(old *schedule.Schedule) (*schedule.Schedule, error) {
		switch {
		case old == nil:
			return nil, unknownSchedule(name)
		case old.FromFile != fromFile:
			return nil, errFromFile
		}
		return nil, nil
	}, reply)
}

var errFromFile = job.Refuse(job.FromFile, "name", "%v", schedule.ErrFromFile)

func unknownSchedule(name string) *job.Fault {
	return job.Refuse(job.UnknownSchedule, "name", "there is no schedule %.60q", name)
}

// isUnended reports whether there is a job with this id, given as text, that has not ended.
func (m *machine) isUnended(id string) bool {
	j, _ := job.ParseID(id)
	r := m.jobs.Get(j)
	return r != nil && !r.State.Ended()
}

// settleSchedules makes the jobs of due times if there is room for more jobs.
func (m *machine) settleSchedules() {
	l := m.schedules
	if len(l.byName) == 0 || m.now < m.fullUntil || m.checkRoom(1, 0) != nil {
		return
	}
	now := m.scheduleTime()
	since, set := l.watch.Observe(now)
	var due []string
	for name, s := range l.byName {
		if s.Schedule == nil || s.writing {
			continue
		}
		if set || s.wakeAt <= m.hostTime || !s.Queued.IsZero() && !m.isUnended(s.LastJobID) {
			due = append(due, name)
		}
	}
	slices.Sort(due)
	jobCount, bytes := 0, 0
	for _, name := range due[:min(len(due), maxStepRecords)] {
		if jobCount >= maxStepRecords || bytes >= maxMadeBytes {
			break
		}
		n := m.settleSchedule(name, l.byName[name], now, since)
		jobCount, bytes = jobCount+n, bytes+n*len(l.byName[name].job.Argument)
	}
}

// settleSchedule makes the due jobs of one schedule, and returns how many are on their way into the
// store.
func (m *machine) settleSchedule(name string, s *scheduled, now, since time.Time) int {
	next := *s.Schedule
	plan := next.Settle(schedule.Conditions{
		Now: now, WatchedSince: since, Room: max(1, min(maxMadeJobs, maxMadeBytes/(len(s.job.Argument)+1))), IsLive: m.isUnended,
		JobID: func(due time.Time) string { return job.ScheduledID(m.namespace, name, due).String() },
	})
	if !plan.HasChanged {
		m.schedules.set(name, s, s.Schedule, s.job, now)
		return 0
	}
	e := &enqueueRequest{reply: func([]job.ID, bool, error) {}}
	var jobs []*job.Job
	for _, run := range plan.Made {
		id, _ := job.ParseID(run.JobID)
		if m.jobs.Get(id) != nil { // the job was made before the clock was set back
			continue
		}
		j := m.queuedJob(id, s.job)
		jobs, e.jobs = append(jobs, j), append(e.jobs, s.job)
		e.bytes += int64(len(j.Argument))
	}
	if m.checkRoom(len(jobs), e.bytes) != nil {
		return 0 // this is tried again at the next beat
	}
	for _, j := range jobs {
		m.seq++
		j.Seq = m.seq
	}
	m.rematch(e)
	m.jobsPending += len(jobs)
	m.bytes += e.bytes
	m.writeSchedule(name, s, &next, s.job, jobs, func(err error) {
		m.finishEnqueue(e, jobs, nil, nil, false, err)
		if err != nil {
			return
		}
		m.schedules.queued["made"] += uint64(len(plan.Made))
		for reason, n := range plan.Skipped {
			m.schedules.queued[reason] += uint64(n)
		}
	})
	return len(jobs)
}

// Schedules returns at most limit schedules, sorted by name, beginning after the name after.
func (m *Master) Schedules(after string, limit int) ([]ScheduleView, error) {
	return readMachine(m, func(mc *machine) (list []ScheduleView, _ error) {
		for _, name := range slices.Sorted(maps.Keys(mc.schedules.byName)) {
			if s := mc.schedules.byName[name]; name > after && s.Schedule != nil && len(list) < limit {
				list = append(list, ScheduleView{name, s.Schedule})
			}
		}
		return list, nil
	})
}

// Schedule returns the schedule with this name.
func (m *Master) Schedule(name string) (ScheduleView, error) {
	return readMachine(m, func(mc *machine) (ScheduleView, error) {
		s := mc.schedules.byName[name]
		if s == nil || s.Schedule == nil {
			return ScheduleView{}, unknownSchedule(name)
		}
		return ScheduleView{name, s.Schedule}, nil
	})
}

// PutSchedule sets a schedule. fromFile says that the schedule is in the file.
func (m *Master) PutSchedule(ctx context.Context, name string, spec schedule.Spec, fromFile bool) error {
	n, err := m.opt.ReadJob(spec.Job)
	if err != nil {
		return err
	}
	return do(ctx, m, func(mc *machine, reply func(error)) { mc.putSchedule(name, spec, n, fromFile, reply) })
}

// DropSchedule drops a schedule. fromFile says that the schedule was in the file.
func (m *Master) DropSchedule(ctx context.Context, name string, fromFile bool) error {
	return do(ctx, m, func(mc *machine, reply func(error)) { mc.dropSchedule(name, fromFile, reply) })
}

// fileRetry is the pause before the master tries again to store the schedules of the file.
const fileRetry = time.Second

// syncFile keeps the stored schedules equal to those of the file, until ctx ends.
func (m *Master) syncFile(ctx context.Context) {
	file := m.opt.Schedules
	if file == nil {
		return
	}
	logged := ""
	for {
		var retryAt <-chan time.Time
		if err := m.putFile(ctx, file.All()); err != nil && ctx.Err() == nil {
			if err.Error() != logged {
				logged = err.Error()
				m.log.Warn().Err(err).Msg("not all schedules of the file are stored; trying again")
			}
			retryAt = time.After(fileRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-file.Changed():
		case <-retryAt:
		}
	}
}

// putFile stores the schedules of the file, and drops those that came from the file and are no
// longer in it.
func (m *Master) putFile(ctx context.Context, specs map[schedule.Key]schedule.Spec) error {
	old, err := m.Schedules("", schedule.MaxSchedules)
	if err != nil {
		return err
	}
	known, dropCount, putCount := make(map[string]bool, len(old)), 0, 0
	for _, s := range old {
		spec, there := specs[schedule.Key{Name: s.Name}]
		known[s.Name] = there && s.FromFile && s.Equal(&spec)
		if there || !s.FromFile {
			continue
		}
		if err := m.DropSchedule(ctx, s.Name, true); err != nil && codeOf(err) != job.UnknownSchedule {
			return err
		}
		dropCount++
	}
	for key, spec := range specs {
		if known[key.Name] {
			continue
		}
		if err := m.PutSchedule(ctx, key.Name, spec, true); err != nil {
			return err
		}
		putCount++
	}
	m.log.Info().Int("schedules", len(specs)).Int("changed", putCount).Int("deleted", dropCount).Msg("the schedules of the file are stored")
	return nil
}
