package broker_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gloom/broker"
	"gloom/broker/wording"
)

// verbArgs holds the parts of a line: plain words in order, and options of the form key=value.
type verbArgs struct {
	args     []string
	opts     map[string]string
	usedOpts map[string]bool
}

func parseVerbLine(line string) *verbArgs {
	a := &verbArgs{opts: map[string]string{}, usedOpts: map[string]bool{}}
	for _, f := range strings.Fields(line) {
		if k, v, ok := strings.Cut(f, "="); ok {
			a.opts[k] = v
		} else {
			a.args = append(a.args, f)
		}
	}
	return a
}

// arg returns plain word number i, or "" if there are fewer.
func (v *verbArgs) arg(i int) string {
	if i < len(v.args) {
		return v.args[i]
	}
	return ""
}

func (v *verbArgs) argBytes(i int) []byte {
	if s := v.arg(i); s != "" {
		return []byte(s)
	}
	return nil
}

// hasFlag reports whether name is among the plain words from number n on.
func (v *verbArgs) hasFlag(n int, name string) bool {
	for i := n; i < len(v.args); i++ {
		if v.args[i] == name {
			return true
		}
	}
	return false
}

func (v *verbArgs) option(name, fallback string) string {
	v.usedOpts[name] = true
	if v, ok := v.opts[name]; ok {
		return v
	}
	return fallback
}

func (v *verbArgs) floatOption(name string) float64 {
	f, err := strconv.ParseFloat(v.option(name, "0"), 64)
	if err != nil {
		panic(err)
	}
	return f
}

// listOption splits the value of an option at its commas; it returns nil if the option is absent.
func (v *verbArgs) listOption(name string) (list [][]byte) {
	if values := v.option(name, ""); values != "" {
		for _, part := range strings.Split(values, ",") {
			list = append(list, []byte(part))
		}
	}
	return list
}

func (v *verbArgs) changeRequest(id int) *broker.ChangeRequest {
	c := &broker.ChangeRequest{ID: v.argBytes(id), Delay: v.durationOption("delay", -1), Groups: v.listOption("groups")}
	_, c.SetPriority = v.opts["priority"]
	_, c.SetGroups = v.opts["groups"]
	c.Priority = v.numberOption("priority", 0)
	return c
}

func (v *verbArgs) numberOption(name string, fallback int64) int64 {
	n, err := strconv.ParseInt(v.option(name, strconv.FormatInt(fallback, 10)), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return n
}

func (v *verbArgs) durationOption(name string, fallback time.Duration) time.Duration {
	d, err := time.ParseDuration(v.option(name, fallback.String()))
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return d
}

// runLine carries out the command in a line.
func (s *script) runLine(line string) (err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("%v", e)
		}
	}()
	w := parseVerbLine(line)
	s.since = s.now
	if s.core == nil {
		s.configure(w)
		if w.arg(0) == "config" {
			return w.checkOpts()
		}
	}
	do := verbs[w.arg(0)]
	if do == nil {
		return fmt.Errorf("unknown verb %q", w.arg(0))
	}
	do(s, int64(s.now), w)
	return w.checkOpts()
}

func (v *verbArgs) checkOpts() error {
	for name := range v.opts {
		if !v.usedOpts[name] {
			return fmt.Errorf("unknown option %q", name)
		}
	}
	return nil
}

func (s *script) configure(w *verbArgs) {
	s.core = broker.New(broker.Config{
		Retries: int(w.numberOption("retries", 3)), MaxUnusedTypes: int(w.numberOption("idle-types", 100)),
		MaxJobs: int(w.numberOption("max-jobs", 0)), MaxTypeJobs: int(w.numberOption("max-type-jobs", 0)),
		MaxSubmitterJobs: int(w.numberOption("max-submitter-jobs", 0)), MaxTypes: int(w.numberOption("max-types", 0)),
		MaxBytes: w.numberOption("max-bytes", 0), MaxGroups: int(w.numberOption("max-groups", 0)),
		DeadLetters: int(w.numberOption("dead-letters", 0)), DeadBytes: w.numberOption("dead-bytes", 1<<20),
		DeadAge: w.durationOption("dead-age", time.Hour), Seed: 1, History: w.numberOption("history", 0),
	})
}

// peer returns the connection with this name. For an unknown name, it returns a peer that the
// core does not know.
func (s *script) peer(name string) broker.Peer {
	if p, ok := s.peers[name]; ok {
		return p
	}
	return broker.Peer(99)<<32 | 99
}

func (s *script) introducePeer(w *verbArgs, add func() broker.Peer) {
	for _, name := range w.args[1:] {
		p := add()
		s.peers[name], s.names[p] = p, name
	}
}

func bodyOption(w *verbArgs, fallback string) []byte { return []byte(w.option("body", fallback)) }

var verbs map[string]func(s *script, now int64, w *verbArgs)

func init() {
	verbs = map[string]func(s *script, now int64, w *verbArgs){
		"submitter": func(s *script, _ int64, w *verbArgs) { s.introducePeer(w, s.core.AddSubmitter) },
		"worker":    func(s *script, _ int64, w *verbArgs) { s.introducePeer(w, s.core.AddWorker) },
		"submit": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Submit(now, s.peer(w.arg(1)), s.newSubmission(w, w.arg(2), w.arg(3))))
		},
		// flood SUBMITTER PREFIX COUNT TYPE makes COUNT quiet submits.
		"flood": func(s *script, now int64, w *verbArgs) {
			n, err := strconv.Atoi(w.arg(3))
			if err != nil {
				panic(err)
			}
			for i := range n {
				sub := s.newSubmission(w, fmt.Sprintf("%s%d", w.arg(2), i+1), w.arg(4))
				sub.NoAck = true
				s.noteEffects(s.core.Submit(now, s.peer(w.arg(1)), sub))
			}
		},
		"cancel": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Cancel(now, s.peer(w.arg(1)), w.argBytes(2)))
		},
		"join": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Join(now, s.peer(w.arg(1)), &broker.JoinRequest{
				Type: w.argBytes(2), Types: w.listOption("types"), Except: w.listOption("except"),
				Prefetch: int(w.numberOption("prefetch", 0)), WantsNotices: w.hasFlag(2, "notices"), WantsHeaders: w.hasFlag(2, "headers"),
			}))
		},
		"respond": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Respond(now, s.peer(w.arg(1)), w.argBytes(2), bodyOption(w, `"done"`), false))
		},
		"progress": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Progress(now, s.peer(w.arg(1)), w.argBytes(2), bodyOption(w, `50`), false))
		},
		// fail WORKER [ID] …; an ID of - stands for none.
		"fail": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Fail(now, s.peer(w.arg(1)), &broker.Failure{
				ID: w.argBytes(2), Reason: w.option("reason", "broken"), NoRetry: w.hasFlag(3, "no-retry"), Delay: int64(w.durationOption("delay", -1)),
			}))
		},
		"release": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Release(now, s.peer(w.arg(1)), &broker.ReleaseRequest{ID: w.argBytes(2), Delay: w.durationOption("delay", 0)}))
		},
		"change": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.Change(now, s.peer(w.arg(1)), w.changeRequest(2)))
		},
		"amend": func(s *script, now int64, w *verbArgs) {
			fx, c, reason := s.core.Amend(now, w.changeRequest(1))
			s.noteEffects(fx)
			if c != 0 {
				s.printf("refused: %s: %s", codes[c], wording.Reason(&reason))
			}
		},
		"leave": func(s *script, now int64, w *verbArgs) { s.noteEffects(s.core.Leave(now, s.peer(w.arg(1)))) },
		"gone":  func(s *script, now int64, w *verbArgs) { s.noteEffects(s.core.RemovePeer(now, s.peer(w.arg(1)))) },
		"expelled": func(s *script, now int64, w *verbArgs) {
			s.noteEffects(s.core.ExpelPeer(now, s.peer(w.arg(1)), w.arg(2)))
		},
		"wait": (*script).letTimePass,
		// late moves the clock without a tick, as if the timer were late.
		"late": func(s *script, _ int64, w *verbArgs) { s.now += pauseOption(w); s.since = s.now },
		// back moves the clock back, which a monotonic clock never does.
		"back":   func(s *script, _ int64, w *verbArgs) { s.now -= pauseOption(w); s.since = s.now },
		"tick":   func(s *script, now int64, _ *verbArgs) { s.noteEffects(s.core.Tick(now)) },
		"pause":  func(s *script, now int64, w *verbArgs) { s.noteConfigured(s.core.Pause(now, w.argBytes(1), true)) },
		"resume": func(s *script, now int64, w *verbArgs) { s.noteConfigured(s.core.Pause(now, w.argBytes(1), false)) },
		"limit": func(s *script, now int64, w *verbArgs) {
			s.noteConfigured(s.core.Limit(now, w.argBytes(1), broker.TypeLimits{
				Concurrency: int(w.numberOption("concurrency", 0)), Rate: w.floatOption("rate"), Burst: int(w.numberOption("burst", 0)),
			}))
		},
		"rule": func(s *script, now int64, w *verbArgs) {
			fx, created, err := s.core.SetRule(now, w.argBytes(1), broker.Rule{
				Concurrency: w.numberOption("concurrency", -1), Rate: w.floatOption("rate"), Burst: w.numberOption("burst", 0),
			})
			s.noteConfigured(fx, err)
			if created {
				s.printf("created")
			}
		},
		"unrule": func(s *script, now int64, w *verbArgs) {
			fx, found := s.core.DropRule(now, w.argBytes(1))
			s.noteEffects(fx)
			s.printf("found %v", found)
		},
		"rules": func(s *script, _ int64, _ *verbArgs) {
			for _, r := range s.core.Rules() {
				s.printf("%s: %+v", r.Pattern, r.Rule)
			}
		},
		"groups": func(s *script, _ int64, _ *verbArgs) {
			for _, g := range s.core.Groups(100) {
				s.printf("%s: %d wait, %d run, %d held back", g.Name, g.Waiting, g.Running, g.Held)
			}
		},
		"fair": func(s *script, now int64, w *verbArgs) {
			s.noteConfigured(s.core.SetFair(now, w.argBytes(1), !w.hasFlag(2, "off")))
		},
		"drain": func(s *script, _ int64, _ *verbArgs) { s.core.Drain() },
		"expel": func(s *script, now int64, _ *verbArgs) {
			for more := true; more; {
				var fx []broker.Effect
				fx, more = s.core.EndLeftovers(now)
				s.noteEffects(fx)
			}
		},
		"revoke": func(s *script, now int64, w *verbArgs) {
			fx, c := s.core.Revoke(now, w.argBytes(1), w.hasFlag(2, "running"))
			s.noteEffects(fx)
			if c != 0 {
				s.printf("refused: %s", codes[c])
			}
		},
		"revive": func(s *script, now int64, w *verbArgs) {
			fx, c, reason := s.core.ResubmitLetter(now, w.argBytes(1), w.argBytes(2), 0)
			s.noteEffects(fx)
			if c != 0 {
				s.printf("refused: %s: %s", codes[c], wording.Reason(&reason))
			}
		},
		"forget": func(s *script, now int64, w *verbArgs) {
			f := broker.ForgetRequest{Name: w.argBytes(1), Discard: w.hasFlag(2, "discard")}
			for more := true; more; {
				var fx []broker.Effect
				fx, more = s.core.ForgetType(now, &f)
				s.noteEffects(fx)
			}
			s.printf("discarded %d, letters %d, outcomes %d; kept by %s", f.Waiting, f.Letters, f.Outcomes, cmp.Or(wording.TypeUse(&f.Use), "nothing"))
		},
		"dead": func(s *script, _ int64, w *verbArgs) {
			letters, _ := s.core.DeadLetters(0, w.argBytes(1), 0, 1000, nil)
			for _, l := range slices.Backward(letters) {
				line := fmt.Sprintf("%s %s, submitted %v, failed %v, attempts %d, priority %d", l.ID, l.Body,
					time.Duration(l.SubmittedAt), time.Duration(l.FailedAt), l.Attempts, l.Priority)
				if len(l.Groups) > 0 {
					line += fmt.Sprintf(", groups %s, headers %s", l.Groups, l.Headers)
				}
				s.printf("%s: %s", line, wording.Reason(&l.Reason))
			}
		},
		"explain": (*script).printJobInfo,
		"history": (*script).printHistory,
		"ledger":  (*script).printLedger,
		"types": func(s *script, now int64, _ *verbArgs) {
			var survey broker.Survey
			for s.core.Survey(now, &survey) {
			}
			s.core.Types(0, 1000, func(t *broker.TypeInfo, _ *broker.TypeStats) {
				survey.Complete(t)
				s.printf("%s: %d workers, %d with room, %d bytes, paused %v", t.Name, t.Workers, t.IdleWorkers, t.Bytes, t.Paused)
			})
		},
		// sweep ticks while there is something to do at once, and prints the number of ticks.
		"sweep": func(s *script, now int64, _ *verbArgs) {
			n := 0
			for ; s.core.NextTick() <= now; n++ {
				s.noteEffects(s.core.Tick(now))
			}
			s.printf("%d ticks", n)
		},
	}
}

func pauseOption(w *verbArgs) time.Duration {
	d, err := time.ParseDuration(w.arg(1))
	if err != nil {
		panic(err)
	}
	return d
}

func (s *script) noteConfigured(fx []broker.Effect, refusal *broker.BadSetting) {
	s.noteEffects(fx)
	if err := wording.SettingErrorOf(refusal); err != nil {
		s.printf("refused: %v", err)
	}
}

func (s *script) newSubmission(w *verbArgs, id, typ string) *broker.Submission {
	return &broker.Submission{
		ID: []byte(id), Type: []byte(typ), Body: bodyOption(w, strconv.Quote(id)),
		Priority: w.numberOption("priority", 0), Retries: int32(w.numberOption("retries", -1)),
		Delay: w.durationOption("delay", 0), Timeout: w.durationOption("timeout", 0),
		Backoff: w.durationOption("backoff", 0), Expires: w.durationOption("expires", 0),
		Groups: w.listOption("groups"), Age: w.durationOption("age", 0), Headers: []byte(w.option("headers", "")),
		Detach: w.hasFlag(4, "detach"), NoAck: w.hasFlag(4, "quiet"), Progress: w.hasFlag(4, "progress"),
	}
}

// letTimePass lets time pass, with the ticks that the core asks for.
func (s *script) letTimePass(_ int64, w *verbArgs) {
	until := s.now + pauseOption(w)
	for {
		next := s.core.NextTick()
		if next > int64(until) {
			break
		}
		s.now = max(s.now, time.Duration(next))
		s.noteEffects(s.core.Tick(int64(s.now)))
	}
	s.now = until
}

func (s *script) printJobInfo(now int64, w *verbArgs) {
	x, found := s.core.Explain(now, w.argBytes(1))
	if !found {
		s.printf("no such job")
		return
	}
	line := fmt.Sprintf("%s, attempts %d of %d", x.State, x.Attempts, x.Retries+1)
	if x.IsUnwanted {
		line += ", unwanted"
	}
	if x.Releases > 0 {
		line += fmt.Sprintf(", given back %d times", x.Releases)
	}
	if x.Worker != 0 {
		line += ", on " + s.names[x.Worker]
	}
	if x.DueIn != 0 {
		line += fmt.Sprintf(", timer in %v", x.DueIn.Round(time.Millisecond))
	}
	if x.State == "queued" {
		var p broker.QueuePosition
		for s.core.QueuePosition(w.argBytes(1), &p) {
		}
		line += fmt.Sprintf(", %d ahead", p.Ahead)
	}
	if holds := wording.WaitingFor(&x); holds != "" {
		line += ": " + holds
	}
	s.printf("%s", line)
	s.printRuns(s.core.Runs(w.argBytes(1)))
}

func (s *script) printRuns(runs []broker.RunInfo) {
	for _, r := range runs {
		s.printf("run %d, from %v to %v, on %s, %s: %s", r.Run, time.Duration(r.StartedAt), time.Duration(r.EndedAt), s.names[r.Worker], r.EndKind, wording.Reason(&r.Reason))
	}
}

// printHistory lists the ended jobs that match a filter, whose fields are options.
func (s *script) printHistory(now int64, w *verbArgs) {
	q := broker.EndedFilter{EndKind: w.option("outcome", ""), Submitter: s.peers[w.option("submitter", "")], MaxTimeSinceEnd: w.durationOption("since", 0)}
	for key, field := range map[string]*[]byte{"id": &q.ID, "type": &q.Type, "group": &q.Group} {
		if v := w.option(key, ""); v != "" {
			*field = []byte(v)
		}
	}
	for from := int64(0); from >= 0; {
		var found []broker.EndedInfo
		found, from = s.core.Ended(now, from, 2, &q)
		for _, x := range found {
			s.printf("%s %s of %s %s: %v to %v, attempts %d, %d bytes, %d back, groups %s: %s", x.Type, x.ID, s.names[x.Submitter], x.EndKind,
				time.Duration(x.SubmittedAt), time.Duration(x.EndedAt), x.Attempts, x.Size, x.AnswerSize, x.Groups, wording.Reason(&x.Reason))
			s.printRuns(x.Runs)
		}
	}
}

func (s *script) printLedger(_ int64, w *verbArgs) {
	l := s.core.Totals()
	if name := w.arg(1); name != "" {
		t, _, found := s.core.Type(w.argBytes(1))
		if !found {
			s.printf("unknown type")
			return
		}
		l = t.Ledger
	}
	line := fmt.Sprintf("submitted %d =", l.Submitted)
	sum := uint64(0)
	for _, part := range []struct {
		name string
		n    uint64
	}{
		{"delayed", l.Delayed}, {"queued", l.Queued}, {"running", l.Running}, {"answered", l.Answered}, {"failed", l.Failed},
		{"cancelled", l.Cancelled}, {"expired", l.Expired}, {"discarded", l.Discarded},
	} {
		sum += part.n
		if part.n > 0 {
			line += fmt.Sprintf(" %s %d", part.name, part.n)
		}
	}
	if sum != l.Submitted {
		panic(fmt.Sprintf("the ledger does not balance: %+v", l))
	}
	s.printf("%s", line)
}
