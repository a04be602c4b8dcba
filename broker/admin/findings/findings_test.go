package findings_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	"gloom/broker/admin/findings"
)

// TestConditionsAreReportedUntilTheyEnd gives State conditions that cannot be staged on a healthy
// machine. The first snapshot that shows a condition reports it, and soon after the condition ends
// the report ends, too.
func TestConditionsAreReportedUntilTheyEnd(t *testing.T) {
	for cause, set := range map[string]func(*findings.Broker){
		"late":          func(b *findings.Broker) { b.Lag = time.Second },
		"imbalance":     func(b *findings.Broker) { b.Imbalance = -1 },
		"unaccepted":    func(b *findings.Broker) { b.AcceptErrors++ },
		"unauthorized":  func(b *findings.Broker) { b.Unauthorized++ },
		"certificate":   func(b *findings.Broker) { b.Certificate, b.CertificateInvalid = "the TLS certificate expired", true },
		"fleet_away":    func(b *findings.Broker) { b.Fleet = &findings.Fleet{Away: true, LostBrokers: []string{"b"}} },
		"fleet_alone":   func(b *findings.Broker) { b.Fleet = &findings.Fleet{NameTaken: true} },
		"fleet_version": func(b *findings.Broker) { b.Fleet = &findings.Fleet{OtherVersions: []string{"b"}} },
		"fleet_lost":    func(b *findings.Broker) { b.Fleet = &findings.Fleet{LostBrokers: []string{"b"}} },
	} {
		var s findings.State
		look := func(at int, b findings.Broker) []api.Finding {
			b.Now, b.Types = time.Unix(int64(at), 0), slices.Values[[]*findings.Type](nil)
			s.Update(&b)
			return s.List(finding.Query{}, 10).Items
		}
		b := findings.Broker{AcceptErrors: 7, Unauthorized: 7}
		if found := look(1, b); len(found) > 0 {
			t.Errorf("%s: found before it happened: %+v", cause, found)
		}
		set(&b)
		if found := look(2, b); len(found) != 1 || found[0].Cause != cause || found[0].Since != "1970-01-01T00:00:02.000Z" {
			t.Errorf("%s: found %+v", cause, found)
		}
		b.Lag, b.Imbalance, b.Certificate, b.Fleet = 0, 0, "", nil
		if found := look(7, b); len(found) > 0 {
			t.Errorf("%s: found after it has gone: %+v", cause, found)
		}
	}
}

// TestJobsWithoutLocalWorkerMayRunElsewhere: in a fleet, jobs without a worker at this broker may run at others.
func TestJobsWithoutLocalWorkerMayRunElsewhere(t *testing.T) {
	at := func(names ...string) func(string) []string {
		return func(string) []string { return names }
	}
	for name, c := range map[string]struct {
		fleet   *findings.Fleet
		running uint64
		cause   string
		want    string
	}{
		"no fleet, left running behind": {nil, 3, "severe no_worker", "no worker serves the type"},
		"a fleet where nobody is":       {&findings.Fleet{}, 0, "severe no_worker", "serves the type here, and no other broker of the fleet is connected"},
		"a fleet with others":           {&findings.Fleet{BrokersUp: 1}, 0, "warning no_worker", "here, and no other broker of the fleet has an idle worker for it"},
		"a fleet that is away":          {&findings.Fleet{Away: true, Since: time.Unix(-11, 0)}, 0, "severe no_worker", "here, and the fleet has been away for 12s"},
		"a fleet with a namesake":       {&findings.Fleet{NameTaken: true, BrokersUp: 1}, 0, "severe no_worker", "this broker is alone"},
		"away, from where they were":    {&findings.Fleet{Away: true, Since: time.Unix(-11, 0), LostServing: at("b", "c")}, 0, "severe no_worker", "the fleet has been away for 12s; workers for it were at b, c, lost lately"},
		"lost, from where they were":    {&findings.Fleet{BrokersUp: 1, LostServing: at("b")}, 0, "warning no_worker", "has an idle worker for it; workers for it were at b, lost lately"},
		"lent":                          {&findings.Fleet{}, 3, "warning all_busy", ""},
	} {
		var s findings.State
		if c.fleet != nil && c.fleet.LostServing == nil {
			c.fleet.LostServing = at()
		}
		typ := findings.Type{Rates: &api.Rates{}, Figures: &api.Type{Type: "t", Queued: 5, Running: c.running}}
		for at := range int64(2) {
			s.Update(&findings.Broker{Now: time.Unix(at, 0), Fleet: c.fleet, Types: slices.Values([]*findings.Type{&typ})})
		}
		if found := s.List(finding.Query{Subject: "t"}, 10).Items; len(found) != 1 || found[0].Severity+" "+found[0].Cause != c.cause || !strings.Contains(found[0].Finding, c.want) {
			t.Errorf("%s: found %+v, want %s: %s", name, found, c.cause, c.want)
		}
	}
}

// TestMostSevereFindingsAreListed: if there are very many findings, the most severe findings are
// listed and the others counted. Conditions that last for less than a second are not reported.
func TestMostSevereFindingsAreListed(t *testing.T) {
	const n = 50_000
	types := make([]*findings.Type, n)
	for i := range types {
		types[i] = &findings.Type{Rates: &api.Rates{}, Figures: &api.Type{Type: fmt.Sprint(i), Queued: uint64(i + 1), Paused: i%2 == 0}}
	}
	var s findings.State
	look := func(at time.Duration) api.Findings {
		s.Update(&findings.Broker{Now: time.Unix(0, 0).Add(at), Types: slices.Values(types)})
		return s.List(finding.Query{}, 100)
	}
	if f := look(0); len(f.Items)+f.More > 0 {
		t.Errorf("found at once: %+v", f)
	}
	f := look(time.Second)
	if len(f.Items) != 100 || f.More != 10_000-100 || f.Counts != (api.Severities{Severe: 10_000}) {
		t.Errorf("%d told, %d more, %+v", len(f.Items), f.More, f.Counts)
	}
	for i, x := range f.Items {
		if want := fmt.Sprint(n - 1 - 2*i); x.Severity != api.Severe || x.Cause != "no_worker" || x.Subject != want {
			t.Errorf("number %d is %+v, want %s", i, x, want)
		}
	}
	if f := s.List(finding.Query{Subject: fmt.Sprint(n - 1)}, 100); len(f.Items) != 1 || f.More != 0 || f.Counts.Severe != 1 {
		t.Errorf("about one subject: %+v", f)
	}
	types = types[:1001]
	look(2 * time.Second)
	if f := look(3 * time.Second); len(f.Items) != 100 || f.More != 901 || f.Counts != (api.Severities{Severe: 500, Warning: 501}) {
		t.Errorf("of both severities: %d told, %d more, %+v", len(f.Items), f.More, f.Counts)
	}
	types = nil
	if f := look(4 * time.Second); len(f.Items)+f.More > 0 {
		t.Errorf("found after all has gone: %+v", f)
	}
}

// watchedType is a type of which a snapshot is taken once a second.
type watchedType struct {
	findings.Type
	before, after api.Type
	at            int64
	state         findings.State
}

func newWatchedType(workers, idle int) *watchedType {
	s := &watchedType{after: api.Type{Type: "t", Workers: workers, Idle: idle}, at: 1000}
	s.Figures, s.Rates = &s.after, &api.Rates{}
	s.takeSnapshot()
	return s
}

// takeSnapshot advances the time by a second, and returns the causes of the findings and the first
// finding.
func (w *watchedType) takeSnapshot() (causes []string, first string) {
	w.at++
	now := time.Unix(w.at, 0)
	w.Update(&w.before, &w.after, now, time.Second)
	w.before = w.after
	w.state.Update(&findings.Broker{Now: now, Types: slices.Values([]*findings.Type{&w.Type})})
	items := w.state.List(finding.Query{Subject: "t"}, 10).Items
	for _, f := range items {
		causes = append(causes, f.Cause)
	}
	if len(items) > 0 {
		first = items[0].Finding + "; " + items[0].Advice
	}
	return causes, first
}

// TestTypeThatOnlyFailsIsReported: a type whose runs are rare and all fail is still reported
// between two failures, until a run is answered, no worker is left, or a minute has passed.
func TestTypeThatOnlyFailsIsReported(t *testing.T) {
	for name, end := range map[string]struct {
		change   func(s *watchedType)
		failSpan int
	}{
		"answered":   {func(s *watchedType) { s.after.Ledger.Answered++ }, 4},
		"no workers": {func(s *watchedType) { s.after.Workers, s.after.Idle = 0, 0 }, 4},
		"no runs":    {func(*watchedType) {}, 61},
	} {
		s := newWatchedType(1, 1)
		for second := range 36 {
			if second%6 == 0 {
				s.after.Ledger.Failed++
			}
			failures := s.after.Ledger.Failed
			if causes, first := s.takeSnapshot(); slices.Contains(causes, "failing") != (failures >= 3) || failures >= 3 && !strings.Contains(first, fmt.Sprintf("all of its runs fail: %d failed, and none", failures)) {
				t.Fatalf("%s: after %d failures: %v %q", name, failures, causes, first)
			}
		}
		end.change(s)
		for second := 0; ; second++ {
			if causes, _ := s.takeSnapshot(); len(causes) == 0 {
				break
			}
			if second > end.failSpan {
				t.Errorf("%s: still told after %d s", name, second)
				break
			}
		}
	}
}

// TestOverlongWaitIsReported: a job that waits long is reported if it is not held back and other
// jobs overtake it; a job that waits very long is reported whatever wait is usual.
func TestOverlongWaitIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		overtaken bool
		heldJobs  int
		found     int // the first second with the finding; 0: never
		want      string
	}{
		"overtaken": {true, 0, 2, "19 of 20 jobs waited less than 16µs; other jobs go first"},
		"not so":    {false, 0, 11, "19 of 20 jobs waited less than 16µs; the runs before it take long"},
		"held back": {true, 1, 0, ""},
	} {
		s := newWatchedType(2, 0)
		s.UsualWait, s.MeanRun, s.HeldJobs = 16*time.Microsecond, time.Millisecond, c.heldJobs
		s.after.Queued, s.after.Running, s.Rates.Out = 2, 2, 1000
		for second := 1; second < 30; second++ {
			s.after.OldestSeconds++
			if c.overtaken {
				s.after.Dispatched++
			}
			causes, first := s.takeSnapshot()
			if found := slices.Contains(causes, "overlong"); found != (c.found > 0 && second >= c.found) || found && !strings.Contains(first, c.want) {
				t.Errorf("%s: after %d s: %v %q", name, second, causes, first)
			}
		}
	}
}

// TestTypeHeldBackByGroupsIsReported: a type whose jobs are held back by rules of groups is reported, too.
func TestTypeHeldBackByGroupsIsReported(t *testing.T) {
	s := newWatchedType(2, 2)
	s.after.Queued, s.HeldJobs = 1200, 1100
	s.takeSnapshot()
	if causes, first := s.takeSnapshot(); !slices.Equal(causes, []string{"group_limit"}) || !strings.Contains(first, "1,200 jobs are waiting: rules of groups hold 1,100 back; gloom groups --type") {
		t.Errorf("found %v %q", causes, first)
	}
}

// TestProposedRateIsAllowed: a rate can be doubled only up to the largest one.
func TestProposedRateIsAllowed(t *testing.T) {
	for limit, want := range map[float64]string{100: "--rate 200/s)", 6e8: "--rate 1000000000/s)"} {
		s := newWatchedType(1, 1)
		s.after.Queued, s.after.Limits.Rate = 10, limit
		s.takeSnapshot()
		if causes, first := s.takeSnapshot(); !slices.Equal(causes, []string{"type_rate"}) || !strings.Contains(first, want) {
			t.Errorf("%g: found %v %q", limit, causes, first)
		}
	}
}

// TestBusyWorkersAreCounted: a finding about a type whose workers are busy counts them.
func TestBusyWorkersAreCounted(t *testing.T) {
	for _, c := range []struct {
		workers int
		running uint64
		want    string
	}{
		{1, 1, "1 job is waiting: its only worker is busy"},
		{3, 3, "1 job is waiting: all 3 workers are busy"},
		{1, 0, "1 job is waiting, and none is running: its only worker is busy with jobs of other types, holds overdue runs, or does not answer; see"},
		{3, 0, "1 job is waiting, and none is running: its 3 workers are busy with jobs of other types, hold overdue runs, or do not answer; see"},
	} {
		s := newWatchedType(c.workers, 0)
		s.after.Queued, s.after.Running = 1, c.running
		s.takeSnapshot()
		if _, first := s.takeSnapshot(); !strings.HasPrefix(first, c.want) {
			t.Errorf("%d workers, %d running: %q, want %q", c.workers, c.running, first, c.want)
		}
	}
}

// TestFirstRunsMayBeLong: while no run has ended, the advice is to look for hanging workers only after
// ten seconds. If runs usually take a second, it comes after three.
func TestFirstRunsMayBeLong(t *testing.T) {
	for meanRun, want := range map[time.Duration]int{0: 11, time.Second: 5} {
		s := newWatchedType(1, 0)
		s.MeanRun, s.after.Queued, s.after.Running = meanRun, 60, 1
		for second := range 20 {
			causes, first := s.takeSnapshot()
			if second >= 2 && !slices.Equal(causes, []string{"all_busy"}) {
				t.Errorf("mean %v: after %d s: %v %q", meanRun, second, causes, first)
			}
			s.after.OldestSeconds++
			if hang := strings.Contains(first, "none has ended lately") && strings.Contains(first, "see whether some hang"); hang != (second >= want) {
				t.Errorf("mean %v: after %d s: %q", meanRun, second, first)
			}
		}
	}
}

// TestGrowingQueueIsReported: a queue is reported as growing if it has more jobs than at any time
// lately, but not if a submitter always keeps the same number of jobs in the queue.
func TestGrowingQueueIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		next  func(second int) uint64
		grows bool
	}{
		"a window":    {func(second int) uint64 { return 50 + uint64(second%3) }, false},
		"a real rise": {func(second int) uint64 { return 50 + uint64(second) }, true},
	} {
		s := newWatchedType(2, 0)
		s.Rates.In, s.Rates.Out = 1.01, 1
		for second := range 40 {
			s.after.Queued, s.after.Running = c.next(second), 2
			_, first := s.takeSnapshot()
			if second > 12 && strings.Contains(first, "the queue is growing") != c.grows {
				t.Fatalf("%s: after %d s: %q", name, second, first)
			}
		}
	}
}

// TestLastingConditionIsReportedInTime: a lasting condition is reported within two seconds, whenever the last
// snapshot was.
func TestLastingConditionIsReportedInTime(t *testing.T) {
	for ms := range 1000 {
		var s findings.State
		look := func(at time.Duration, queued uint64) int {
			typ := findings.Type{Rates: &api.Rates{}, Figures: &api.Type{Type: "t", Queued: queued, Paused: true}}
			s.Update(&findings.Broker{Now: time.Unix(0, 0).Add(at), Types: slices.Values([]*findings.Type{&typ})})
			return len(s.List(finding.Query{}, 1).Items)
		}
		// The condition begins right after the first snapshot, and the next one is
		// late.
		look(0, 0)
		gap := time.Duration(ms) * time.Millisecond
		if look(gap, 1) > 0 {
			t.Fatalf("told after %v", gap)
		}
		if look(max(gap, 1500*time.Millisecond), 1) == 0 {
			t.Fatalf("not told after 1.5 s, with looks after 0 and %v", gap)
		}
	}
}
