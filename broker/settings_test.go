package broker_test

import (
	"fmt"
	"reflect"
	"testing"

	"gloom/broker"
)

func bytesOfNames(list ...string) (out [][]byte) {
	for _, s := range list {
		out = append(out, []byte(s))
	}
	return out
}

func countJobs(fx []broker.Effect) (n int) {
	for _, e := range fx {
		if e.Op == broker.OpJob {
			n++
		}
	}
	return n
}

// TestSettingsChangeHandsOutNoHeldJob: if a job is held back before and after a change of settings,
// it must not be handed out during the change, however many groups must be revised.
func TestSettingsChangeHandsOutNoHeldJob(t *testing.T) {
	oneRun := broker.Rule{Concurrency: 1}
	noRuns := broker.Rule{Concurrency: 0}
	rules := func(r broker.Rule, patterns ...string) (infos []broker.RuleInfo) {
		for _, p := range patterns {
			infos = append(infos, broker.RuleInfo{Pattern: []byte(p), Rule: r})
		}
		return infos
	}
	typ := func(concurrency int) []broker.TypeSetting {
		return []broker.TypeSetting{{Name: []byte("t"), Limits: &broker.TypeLimits{Concurrency: concurrency}}}
	}
	groups := 5000 // more groups than one command revises
	if broker.InvariantsEnabled {
		groups = 2500
	}
	for _, c := range []struct {
		name          string
		before, after broker.Settings
		groups        int // the jobs are in this many groups
		run           int // how many jobs then run
	}{
		{"a pattern for another", broker.Settings{Rules: rules(oneRun, "g-*")}, broker.Settings{Drop: bytesOfNames("g-*"), Rules: rules(oneRun, "g*")}, 1, 1},
		{"a pattern for a name", broker.Settings{Rules: rules(oneRun, "g-*")}, broker.Settings{Drop: bytesOfNames("g-*"), Rules: rules(oneRun, "g-0")}, 1, 1},
		{"a name for a pattern", broker.Settings{Rules: rules(oneRun, "g-0")}, broker.Settings{Drop: bytesOfNames("g-0"), Rules: rules(oneRun, "*")}, 1, 1},
		{"a rule for a type", broker.Settings{Rules: rules(oneRun, "g-0")}, broker.Settings{Drop: bytesOfNames("g-0"), Types: typ(1)}, 1, 1},
		{"a type for a rule", broker.Settings{Types: typ(1)}, broker.Settings{Rules: rules(oneRun, "g-*"), Types: typ(0)}, 1, 1},
		{"a type for a rule of many groups", broker.Settings{Types: typ(1)}, broker.Settings{Rules: rules(noRuns, "g-*"), Types: typ(0)}, groups, 1},
		{"a rule for another of many groups", broker.Settings{Rules: rules(noRuns, "g-*")}, broker.Settings{Drop: bytesOfNames("g-*"), Rules: rules(noRuns, "x*", "g*")}, groups, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := broker.New(broker.Config{})
			if _, err := b.Configure(0, &c.before); err != nil {
				t.Fatal(err)
			}
			s, w := b.AddSubmitter(), b.AddWorker()
			b.Join(0, w, &broker.JoinRequest{Types: bytesOfNames("t"), Prefetch: 2 * groups})
			handedOut := 0
			for i := range max(c.groups, 50) {
				handedOut += countJobs(b.Submit(0, s, &broker.Submission{
					ID: fmt.Append(nil, i), Type: []byte("t"), Body: []byte("1"), Groups: bytesOfNames(fmt.Sprint("g-", i%c.groups)), NoAck: true,
				}))
			}
			if handedOut != c.run {
				t.Fatalf("before, %d jobs run, want %d", handedOut, c.run)
			}
			fx, err := b.Configure(0, &c.after)
			if err != nil {
				t.Fatal(err)
			}
			moreJobs, ticks := countJobs(fx), 0
			for ; b.NextTick() <= 0 && ticks < 10_000; ticks++ {
				moreJobs += countJobs(b.Tick(0))
			}
			if moreJobs > 0 || b.NextTick() <= 0 {
				t.Errorf("%d jobs were let go, in %d ticks", moreJobs, ticks)
			}
		})
	}
}

// TestRefusedConfigureChangesNothing: if one setting is invalid, none is applied.
func TestRefusedConfigureChangesNothing(t *testing.T) {
	free := broker.TypeSetting{Name: []byte("t1"), Limits: &broker.TypeLimits{}}
	limitSetting := func(name string) broker.TypeSetting {
		return broker.TypeSetting{Name: []byte(name), Limits: &broker.TypeLimits{Concurrency: 1}}
	}
	var rules []broker.RuleInfo
	for i := range 1001 {
		rules = append(rules, broker.RuleInfo{Pattern: fmt.Appendf(nil, "p%d-*", i), Rule: broker.Rule{Concurrency: 1}})
	}
	for _, c := range []struct {
		name    string
		s       broker.Settings
		pattern string // the pattern that is reported as bad
		typ     string // the type that is reported as bad; if both are empty, all settings are valid
	}{
		{"too many patterns", broker.Settings{Drop: bytesOfNames("a"), Rules: rules, Types: []broker.TypeSetting{limitSetting("t1")}}, "p999-*", ""},
		{"as many as may be", broker.Settings{Drop: bytesOfNames("held-*"), Rules: rules[:1000]}, "", ""},
		{"a rule out of range", broker.Settings{Drop: bytesOfNames("a"), Rules: []broker.RuleInfo{rules[0], {Pattern: []byte("b"), Rule: broker.Rule{Concurrency: -2}}}}, "b", ""},
		{"too many types", broker.Settings{Drop: bytesOfNames("a"), Types: []broker.TypeSetting{limitSetting("t1"), limitSetting("t2"), limitSetting("t3")}}, "", "t3"},
		{"types in place of others", broker.Settings{Types: []broker.TypeSetting{free, limitSetting("t2"), limitSetting("t3")}}, "", ""},
		{"a type out of range", broker.Settings{Drop: bytesOfNames("a"), Types: []broker.TypeSetting{{Name: []byte("t1"), Limits: &broker.TypeLimits{Burst: 1}}}}, "", "t1"},
	} {
		b := broker.New(broker.Config{MaxTypes: 2})
		before := broker.Settings{
			Rules: []broker.RuleInfo{{Pattern: []byte("a"), Rule: broker.Rule{Concurrency: 5}}, {Pattern: []byte("held-*"), Rule: broker.Rule{Concurrency: 0}}},
			Types: []broker.TypeSetting{limitSetting("t1")},
		}
		if _, err := b.Configure(0, &before); err != nil {
			t.Fatal(err)
		}
		state := func() []any {
			x, _, _ := b.Type([]byte("t1"))
			return []any{b.Rules(), b.TypeCount(), b.TypesInUse(), x.Limits}
		}
		oldState := state()
		_, refusal := b.Configure(0, &c.s)
		switch {
		case (refusal != nil) != (c.pattern+c.typ != ""), refusal != nil && (string(refusal.Pattern) != c.pattern || string(refusal.Type) != c.typ):
			t.Errorf("%s: %+v, want %q", c.name, refusal, c.pattern+c.typ)
		case refusal != nil && !reflect.DeepEqual(state(), oldState):
			t.Errorf("%s: refused (%+v), but %+v has become %+v", c.name, refusal, oldState, state())
		}
	}
}
