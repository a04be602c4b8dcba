package master

import (
	"errors"
	"testing"
	"time"

	"gloom/cmd/internal/boot"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// TestEndDuringRequest: if the machine ends while the store processes a request, waiting callers get
// the store's answer.
func TestEndDuringRequest(t *testing.T) {
	for _, v := range []struct {
		name   string
		answer error
		code   job.Code
	}{
		{"written", nil, job.Code{}},
		{"fenced", store.ErrFenced, job.Starting},
		{"away", store.ErrAway, job.StoreUnavailable},
		{"reused", store.ErrKeyReused, job.KeyReused},
	} {
		t.Run(v.name, func(t *testing.T) {
			slowStore := &heldStore{Store: store.NewMemory(), pendingCalls: make(chan func(error), 1)}
			m := Open(Options{Limits: DefaultLimits(), Store: slowStore})
			result := make(chan error, 1)
			end := func() {
				t.Helper()
				answer := <-slowStore.pendingCalls
				m.deactivate(m.machine)
				answer(v.answer)
				select {
				case err := <-result:
					var f *job.Fault
					if errors.As(err, &f); (err == nil) != (v.answer == nil) || f != nil && f.Code != v.code {
						t.Errorf("told %v", err)
					}
				case <-time.After(45 * time.Second):
					t.Error("nobody is told anything")
				}
			}
			keepAlive(m)
			go func() {
				ids, _, _, err := m.Enqueue([]*NewJob{{Attributes: job.Attributes{Name: "n"}}}, nil)
				if err == nil && len(ids) != 1 {
					t.Errorf("ids %v", ids)
				}
				result <- err
			}()
			end()
			if v.answer != nil && !errors.Is(v.answer, store.ErrFenced) {
				return // only Enqueue returns such an answer
			}
			keepAlive(m)
			go func() {
				r, err := m.Register(job.Worker{Name: "w", MaxJobs: 1})
				if err == nil && r.ID.IsZero() {
					t.Error("no id")
				}
				result <- err
			}()
			end()
		})
	}
}

// keepAlive gives a master an active machine without a broker.
func keepAlive(m *Master) {
	mc := newMachine(m.opt.Limits, 1)
	mc.env = environment{
		store: m.opt.Store,
		run:   func(f func()) { m.queueStep(mc, f) }, runOr: func(f, onGone func()) { m.queueCommand(command{mc, f, onGone}) },
		fail: func(error) {},
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machine, m.alarm, m.alarmAt = mc, time.NewTimer(time.Hour), never
	m.active.Store(&activeMachine{mc, make(chan struct{})})
}

// heldStore is a store that holds back its answers until a test releases them.
type heldStore struct {
	store.Store
	pendingCalls chan func(error)
}

func (s *heldStore) Enqueue(jobs []*job.Job, _ *store.Key, done func([]job.ID, bool, error)) {
	s.pendingCalls <- func(err error) { done([]job.ID{jobs[0].ID}, false, err) }
}

func (s *heldStore) PutWorker(_ job.ID, _ *job.Worker, done func(error)) { s.pendingCalls <- done }

// foreignClockStore is a store with a clock of its own, not this host's.
type foreignClockStore struct{ *store.Memory }

func (foreignClockStore) At(time.Duration) int64 { return 1_900_000_000_000 }

// TestClockNeverGoesBack: the machine's time never goes back, never runs ahead of the boot clock,
// and follows it.
func TestClockNeverGoesBack(t *testing.T) {
	m := Open(Options{Store: foreignClockStore{}})
	wallTime := func() int64 { return m.startedAt + toMillis(boot.Since()-m.bootOffset) }
	last, _, _ := m.clock()
	for end := wallTime() + 50; last < end; {
		now, _, _ := m.clock()
		if limit := wallTime(); now < last || now > limit {
			t.Fatalf("%d after %d, and the boot clock says %d", now, last, limit)
		}
		last = now
	}
}

// TestTimeOfTheStore: a master uses the store's clock for windows, delays and the time at which
// jobs are forgotten, and its host's clock for due times.
func TestTimeOfTheStore(t *testing.T) {
	m := Open(Options{Limits: DefaultLimits(), Store: foreignClockStore{store.NewMemory()}})
	mc := newMachine(m.opt.Limits, 1)
	mc.setTime(m.clock())
	if host := mc.scheduleTime(); mc.wallTime != 1_900_000_000_000 || time.Since(host).Abs() > time.Minute {
		t.Errorf("it is %v by the store, %v by the host", time.UnixMilli(mc.wallTime), host)
	}
}

// TestEndDuringPull: a pull that waits for room in a reply when the machine ends is told so.
func TestEndDuringPull(t *testing.T) {
	m := Open(Options{Limits: DefaultLimits(), Store: store.NewMemory()})
	keepAlive(m)
	w, err := m.Register(job.Worker{Name: "w", MaxJobs: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Pull(t.Context(), job.Caller{ID: w.ID}, 1, 1, 0, func(_ int, mayWait bool) error {
		if !mayWait {
			return errLinking
		}
		m.deactivate(m.machine)
		return nil
	})
	if codeOf(err) != job.Starting {
		t.Errorf("told %v", err)
	}
}
