package master

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"gloom/cmd/internal/schedule"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// scheduleWorld is a world whose machine has schedules.
type scheduleWorld struct {
	*simulation
	t *testing.T
}

func newScheduleWorld(t *testing.T) *scheduleWorld {
	w := &scheduleWorld{newSimulation(t, 1), t}
	w.read()
	return w
}

func (w *scheduleWorld) read() {
	w.machine.schedules.readJob = func(json.RawMessage) (*NewJob, error) {
		return &NewJob{Attributes: job.Attributes{Name: "mail", Argument: []byte{0x80}, MaxRetry: 1, Timeout: 1}}, nil
	}
}

// restart starts a new machine with the content of the store.
func (w *scheduleWorld) restart() {
	w.start()
	w.read()
	err := w.memory.Load(w.t.Context(), store.LoadHandlers{
		Seq: func(uint64) {}, Key: func(int64, int) {}, Worker: func(*job.Worker) {}, Job: func(*job.Job, int64, int64) {},
		Constraint: func(*job.Constraint) error { return nil }, Schedule: w.machine.loadSchedule,
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *scheduleWorld) put(name, text string, fromFile bool) (result error) {
	w.t.Helper()
	spec, err := schedule.Parse([]byte(text), func(json.RawMessage) error { return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	n, _ := w.machine.schedules.readJob(nil)
	result = errors.New("no answer")
	w.step(w.machine, func() { w.machine.putSchedule(name, spec, n, fromFile, func(err error) { result = err }) })
	w.store.flush()
	return result
}

// watch lets time pass, and calls settleSchedules at each beat.
func (w *scheduleWorld) watch(d time.Duration) {
	for range d / beatInterval {
		w.now += toMillis(beatInterval)
		w.step(w.machine, w.machine.settleSchedules)
		w.store.flush()
	}
}

func (w *scheduleWorld) last(name string) (list []string) {
	w.t.Helper()
	s := w.machine.schedules.byName[name]
	for _, r := range slices.Backward(s.RecentRuns) {
		text := fmt.Sprint(r.DueAt.Sub(s.Created).Seconds()) + r.Skipped
		if id, _ := job.ParseID(r.JobID); r.Skipped == "" && w.machine.jobs.Get(id) == nil {
			text += "!"
		}
		list = append(list, text)
	}
	return list
}

func (w *scheduleWorld) want(name, want string) {
	w.t.Helper()
	if got := fmt.Sprint(w.last(name)); got != want {
		w.t.Errorf("%s: %s, want %s", name, got, want)
	}
}

const tick = `{"cron":"@every 10s","job":1`

// TestScheduledJobs: each due time makes one job, whether the store is slow, away or read again;
// due times at which no master ran are caught up as the schedule says.
func TestScheduledJobs(t *testing.T) {
	w := newScheduleWorld(t)
	for name, rest := range map[string]string{"none": `}`, "all": `,"catch_up":"all"}`, "skip": `,"overlap":"skip"}`} {
		if err := w.put(name, tick+rest, false); err != nil {
			t.Fatal(err)
		}
	}
	w.watch(21 * time.Second)
	w.restart()
	w.watch(10 * time.Second)
	w.now += 20_000 // no master runs
	w.restart()
	w.watch(11 * time.Second) // 60
	w.store.away = true
	w.watch(10 * time.Second) // the due time 70 waits for the store
	w.store.away = false
	w.store.flush()
	w.watch(beatInterval)
	w.want("none", "[10 20 30 40missed 50missed 60 70]")
	w.want("all", "[10 20 30 40 50 60 70]")
	w.want("skip", "[10 20running 30running 40missed 50missed 60running 70running]")
	if n := w.machine.jobs.Len(); n != 5+7+1 || w.machine.counts[job.Queued] != n || w.machine.jobsPending != 0 {
		t.Errorf("%d jobs, %v, %d on their way", n, w.machine.counts, w.machine.jobsPending)
	}
	w.now -= 50_000 // the clock is set back
	w.watch(60 * time.Second)
	w.want("all", "[10 20 30 40 50 60 70 80]")
	w.want("none", "[10 20 30 40missed 50missed 60 70 40 50 80]") // missed due times make their jobs
}

// TestScheduledWithoutRoom: due jobs for which there is no room are made when there is room; no job
// is lost or made twice.
func TestScheduledWithoutRoom(t *testing.T) {
	w := newScheduleWorld(t)
	if err := w.put("x", tick+`}`, false); err != nil {
		t.Fatal(err)
	}
	w.machine.MaxJobs = 0
	w.watch(13 * time.Second)
	w.want("x", "[]")
	w.machine.MaxJobs = 1
	w.watch(beatInterval)
	w.want("x", "[10missed]")
	w.machine.MaxJobs = 40
	w.watch(7 * time.Second)
	w.want("x", "[10missed 20]")
}

// TestChangesOfSchedules: changes that come at the same time are made one after the other, and only
// the file changes the schedules of the file.
func TestChangesOfSchedules(t *testing.T) {
	w := newScheduleWorld(t)
	m := w.machine
	var answers []string
	note := func(err error) {
		var f *job.Fault
		if errors.As(err, &f) {
			answers = append(answers, f.Code.Name)
			return
		}
		answers = append(answers, fmt.Sprint(err))
	}
	spec := func(note string) schedule.Spec {
		s, _ := schedule.Parse([]byte(`{"cron":"@daily","job":1,"note":"`+note+`"}`), func(json.RawMessage) error { return nil })
		return s
	}
	n, _ := m.schedules.readJob(nil)
	w.store.away = true // answers are held
	w.step(m, func() { m.putSchedule("x", spec("1"), n, false, note) })
	w.step(m, func() { m.putSchedule("x", spec("2"), n, false, note) })
	w.step(m, func() { m.dropSchedule("x", false, note) })
	w.step(m, func() { m.dropSchedule("x", false, note) })
	w.step(m, func() { m.putSchedule("x", spec("3"), n, true, note) })
	w.step(m, func() { m.putSchedule("x", spec("4"), n, false, note) })
	w.store.away = false
	w.store.flush()
	if got := fmt.Sprint(answers); got != "[<nil> <nil> <nil> unknown_schedule <nil> from_file]" {
		t.Errorf("answers: %s", got)
	}
	if s := m.schedules.byName["x"]; s.Note != "3" || !s.FromFile || s.writing || m.schedules.bytes != 2 {
		t.Errorf("%+v, %d bytes", s, m.schedules.bytes)
	}
	w.step(m, func() { m.dropSchedule("x", true, note) })
	w.store.flush()
	if len(m.schedules.byName) != 0 || m.schedules.bytes != 0 {
		t.Errorf("%v, %d bytes", m.schedules.byName, m.schedules.bytes)
	}
	for i := range schedule.MaxSchedules {
		m.schedules.byName[fmt.Sprint(i)] = &scheduled{}
	}
	answers = nil
	w.step(m, func() { m.putSchedule("x", spec("5"), n, false, note) })
	if got := fmt.Sprint(answers); got != "[overloaded]" || m.schedules.byName["x"] != nil {
		t.Errorf("beyond the limit: %s", got)
	}
}

// TestLongScheduleNeedsRoom: a schedule is refused if the text of its job passes max-bytes.
func TestLongScheduleNeedsRoom(t *testing.T) {
	w := newScheduleWorld(t)
	w.machine.MaxBytes = 2000
	for padding, code := range map[int]job.Code{1000: {}, 2000: job.Overloaded} {
		text := fmt.Sprintf(`{"cron":"@yearly","job":{"name":"mail","argument":{"a":"%0*d"}}}`, padding, 0)
		if err := w.put(fmt.Sprint(padding), text, false); codeOf(err) != code {
			t.Errorf("with %d bytes: %v", padding, err)
		}
	}
}
