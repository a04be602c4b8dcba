package master

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"

	"gloom/cmd/jq-master/job"
)

// maxBuckets is how many buckets a constraint has by the value of its per; further
// values share one.
const maxBuckets = 100_000

// picker says which jobs a constraint is about, and which bucket of it.
type picker struct {
	match func(*job.Attributes) bool
	per   func(*job.Attributes) []byte // equal for equal values; nil: one bucket for all
}

// constraint is a rule for groups of the broker, and the jobs in them.
type constraint struct {
	job.Constraint
	picker
	number  uint64         // no other one has, or had, it
	buckets map[bucket]int // jobs in each; nil without per

	matching, running int
	// From a restart on, tokens are had back one by one: phase says how far the
	// rule is, until phaseAt.
	phase   phase
	phaseAt int64
}

type phase uint8

const (
	full  phase = iota // the rule as it was set
	empty              // no token
	one                // one token
)

// bucket is the hash of a per value.
type bucket [16]byte

// shared is the bucket of values beyond maxBuckets.
var shared = bucket{'s'}

// membership is a constraint that a job comes under.
type membership struct {
	of     *constraint
	bucket bucket
}

// set is the constraints that a job comes under; jobs with the same ones share it.
type set struct {
	key     string
	members []membership
	jobs    int
	// all are the broker's groups of these jobs. Those of rates are left out of
	// lasting: a job that runs already has taken its tokens.
	all, lasting []string
}

// constraints are all constraints, and how far waiting jobs know of them.
type constraints struct {
	byID    map[string]*constraint
	sets    map[string]*set
	numbers uint64
	list    []*constraint // enabled, by id
	sweep   int           // index in machine.order of the next job to be told; -1: all know
	sweeps  []func()      // called when they do
}

func newConstraints() *constraints {
	return &constraints{byID: make(map[string]*constraint), sets: make(map[string]*set), sweep: -1}
}

// relist is called when a constraint was added, dropped, or changed.
func (s *constraints) relist() {
	s.list = s.list[:0:0]
	for _, k := range s.byID {
		if k.Enabled {
			s.list = append(s.list, k)
		}
	}
	slices.SortFunc(s.list, func(a, b *constraint) int { return cmp.Compare(a.ID, b.ID) })
}

// moved is called when the indexes of machine.order have changed.
func (s *constraints) moved() {
	if s.sweep > 0 {
		s.sweep = 0
	}
}

// match finds the constraints that a job comes under; nil for none.
func (s *constraints) match(a *job.Attributes) *set {
	var members []membership
	var key []byte
	for _, k := range s.list {
		if !k.match(a) {
			continue
		}
		m := membership{of: k}
		if k.per != nil {
			sum := sha256.Sum256(k.per(a))
			copy(m.bucket[:], sum[:])
			if k.buckets[m.bucket] == 0 && len(k.buckets) >= maxBuckets {
				m.bucket = shared
			}
		}
		members = append(members, m)
		key = append(binary.AppendUvarint(key, k.number), m.bucket[:]...)
	}
	if members == nil {
		return nil
	}
	if known := s.sets[string(key)]; known != nil {
		return known
	}
	found := &set{key: string(key), members: slices.Clip(members)}
	for _, m := range members {
		if m.of.Concurrency >= 0 {
			found.lasting = append(found.lasting, m.of.group('c', m.bucket))
		}
	}
	found.all = slices.Clone(found.lasting)
	for _, m := range members {
		if m.of.Rate > 0 {
			found.all = append(found.all, m.of.group('r', m.bucket))
		}
	}
	return found
}

// enter puts a job under its constraints.
func (s *constraints) enter(r *record) {
	g := s.match(&r.Attributes)
	if r.groups = g; g == nil {
		return
	}
	if g.jobs++; g.jobs == 1 {
		s.sets[g.key] = g
	}
	g.count(r, 1)
}

// leave takes it out.
func (s *constraints) leave(r *record) {
	g := r.groups
	if g == nil {
		return
	}
	g.count(r, -1)
	if g.jobs--; g.jobs == 0 {
		delete(s.sets, g.key)
	}
	r.groups = nil
}

func (g *set) count(r *record, by int) {
	for i := range g.members {
		m := &g.members[i]
		k := m.of
		k.matching += by
		if r.State == job.Running {
			k.running += by
		}
		if k.per == nil {
			continue
		}
		if k.buckets[m.bucket] += by; k.buckets[m.bucket] == 0 {
			delete(k.buckets, m.bucket)
		}
	}
}

// groups are the broker's groups of a job, none for nil.
func (g *set) groups() []string {
	if g == nil {
		return nil
	}
	return g.all
}

// group is the name of a group: those of concurrency and of rate are two, so that
// a job that runs already can be in the one alone.
func (k *constraint) group(what byte, b bucket) string {
	name := string(what) + ":" + escape(k.ID)
	if k.per != nil {
		name += ":" + hex.EncodeToString(b[:])
	}
	return name
}

// pattern fits all groups of a constraint.
func (k *constraint) pattern(what byte) string {
	name := string(what) + ":" + escape(k.ID)
	if k.per != nil {
		name += ":*"
	}
	return name
}

// escape keeps what means something in patterns out of names.
func escape(id string) string {
	var b []byte
	for i := range len(id) {
		if c := id[i]; c == '*' || c == '%' || c == ':' {
			b = append(b, '%', "0123456789ABCDEF"[c>>4], "0123456789ABCDEF"[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// ruleChange sets the rule of a pattern, or drops it.
type ruleChange struct {
	pattern     string
	drop        bool
	rate        float64 // 0: none
	burst       int64
	concurrency int64 // -1: none
}

// set tells the broker the rules of a constraint as they are now.
func (c *machine) set(k *constraint) {
	if k.Concurrency >= 0 {
		n := k.Concurrency
		c.rule(ruleChange{pattern: k.pattern('c'), concurrency: n})
	}
	if k.Rate <= 0 {
		return
	}
	rule := ruleChange{pattern: k.pattern('r'), concurrency: -1, rate: k.Rate, burst: k.Burst}
	switch k.phase {
	case empty:
		rule.rate, rule.burst, rule.concurrency = 0, 0, 0
	case one:
		rule.burst = 1
	}
	c.rule(rule)
}

func (c *machine) rule(change ruleChange) {
	line := c.out.line
	c.later(func() { line.rules(change) })
}

// unset drops the rules of what a constraint was.
func (c *machine) unset(k *constraint) {
	if k.Concurrency >= 0 {
		c.rule(ruleChange{pattern: k.pattern('c'), drop: true})
	}
	if k.Rate > 0 {
		c.rule(ruleChange{pattern: k.pattern('r'), drop: true})
	}
}

// emptied has the buckets of a constraint begin without tokens, as after a restart:
// none until the first would be there, then one at most until all would be.
func (c *machine) emptied(k *constraint) {
	if k.Rate > 0 {
		k.phase, k.phaseAt = empty, c.now+seconds(1/k.Rate)
	}
}

func seconds(s float64) int64 {
	return int64(min(s, 1e9) * 1000)
}

// refill goes on with buckets that began empty.
func (c *machine) refill() {
	for _, k := range c.constraints.byID {
		if k.phase == full || c.now < k.phaseAt {
			continue
		}
		if k.phase == empty && k.Burst > 1 {
			k.phase, k.phaseAt = one, c.now+seconds(float64(k.Burst-1)/k.Rate)
		} else {
			k.phase = full
		}
		c.set(k)
	}
}

// putConstraint sets a constraint. The reply comes when all jobs know of it.
func (c *machine) putConstraint(n *job.Constraint, pick picker, ifMatch uint64, must bool, reply func(created bool, err error)) {
	tell := func(created bool, err error) { c.later(func() { reply(created, err) }) }
	old := c.constraints.byID[n.ID]
	switch {
	case c.away != nil:
		tell(false, c.storeAway())
		return
	case c.changing:
		c.changes = append(c.changes, func() { c.putConstraint(n, pick, ifMatch, must, reply) })
		return
	case (must || ifMatch != 0) && old == nil, ifMatch != 0 && old.Version != ifMatch:
		tell(false, job.Refuse(job.PreconditionFailed, "", "the constraint %q is not what If-Match says", n.ID))
		return
	case old == nil && len(c.constraints.byID) >= c.MaxConstraints:
		tell(false, overloaded("there are %d constraints, as many as are allowed (max-constraints)", len(c.constraints.byID)))
		return
	}
	stored := *n
	if stored.Version = 1; old != nil {
		stored.Version = old.Version + 1
	}
	c.changing = true
	c.later(func() {
		c.out.store.PutConstraint(&stored, func(err error) {
			c.out.enter(func() {
				defer c.changed()
				if err != nil {
					tell(false, c.notStored(err))
					return
				}
				created := c.constraints.byID[n.ID] == nil
				c.replace(&stored, pick)
				c.spread(func() { reply(created, nil) })
			})
		})
	})
}

// changed is told that a change of constraints is written, or is not to be. Others
// have waited for it, as what they demand of the constraint is judged by the last.
func (c *machine) changed() {
	c.changing = false
	for len(c.changes) > 0 && !c.changing {
		next := c.changes[0]
		c.changes = c.changes[1:]
		next()
	}
}

// notStored is what becomes of a request whose effect could not be written.
func (c *machine) notStored(err error) error {
	var unwritable *Unwritable
	if errors.As(err, &unwritable) {
		return job.Refuse(job.StoreUnavailable, "", "%v", err)
	}
	c.out.fault(err)
	return errStarting
}

// Unwritable says that a file cannot be written; the store is as it was.
type Unwritable struct{ Err error }

func (u *Unwritable) Error() string { return "the constraint is not stored: " + u.Err.Error() }

// replace puts a constraint in the place of the one with its id.
func (c *machine) replace(n *job.Constraint, pick picker) *constraint {
	c.constraints.numbers++
	k := &constraint{Constraint: *n, picker: pick, number: c.constraints.numbers}
	if pick.per != nil {
		k.buckets = make(map[bucket]int)
	}
	old := c.constraints.byID[n.ID]
	if old != nil && old.Enabled {
		k.phase, k.phaseAt = old.phase, old.phaseAt
		for _, what := range []byte("cr") {
			was, is := old.rules(what), k.rules(what) && k.Enabled
			if was && (!is || old.pattern(what) != k.pattern(what)) {
				c.rule(ruleChange{pattern: old.pattern(what), drop: true})
			}
		}
	}
	c.constraints.byID[n.ID] = k
	if k.Enabled {
		c.set(k)
	}
	c.constraints.relist()
	return k
}

// rules reports whether a constraint has a rule for groups of this kind.
func (k *constraint) rules(what byte) bool {
	if what == 'c' {
		return k.Concurrency >= 0
	}
	return k.Rate > 0
}

// dropConstraint drops a constraint. The reply comes when all jobs know of it.
func (c *machine) dropConstraint(id string, ifMatch uint64, reply func(error)) {
	tell := func(err error) { c.later(func() { reply(err) }) }
	k := c.constraints.byID[id]
	switch {
	case c.away == nil && c.changing:
		c.changes = append(c.changes, func() { c.dropConstraint(id, ifMatch, reply) })
		return
	case k == nil:
		tell(job.Refuse(job.UnknownConstraint, "", "there is no constraint %q", id))
		return
	case c.away != nil:
		tell(c.storeAway())
		return
	case ifMatch != 0 && k.Version != ifMatch:
		tell(job.Refuse(job.PreconditionFailed, "", "the constraint %q is not what If-Match says", id))
		return
	}
	c.changing = true
	c.later(func() {
		c.out.store.DropConstraint(id, func(err error) {
			c.out.enter(func() {
				defer c.changed()
				if err != nil {
					tell(c.notStored(err))
					return
				}
				if k := c.constraints.byID[id]; k != nil {
					if k.Enabled {
						c.unset(k)
					}
					delete(c.constraints.byID, id)
					c.constraints.relist()
				}
				c.spread(func() { reply(nil) })
			})
		})
	})
}

// spread has all jobs looked at again, in slices, and calls told when they were.
func (c *machine) spread(told func()) {
	c.constraints.sweep = 0
	c.constraints.sweeps = append(c.constraints.sweeps, told)
}

// sweepSlice looks at some jobs and reports whether there are more to look at. It
// begins anew when a constraint changes meanwhile.
func (c *machine) sweepSlice(looks int) (more bool) {
	s := c.constraints
	if s.sweep < 0 {
		return false
	}
	per := 1 + len(s.list)
	for ; s.sweep < len(c.order) && looks > 0; s.sweep++ {
		r := c.order[s.sweep].rec
		if r == nil || r.State.Ended() {
			looks--
			continue
		}
		looks -= per
		c.regroupBy(r)
	}
	if s.sweep < len(c.order) {
		return true
	}
	s.sweep = -1
	line := c.out.line
	for _, told := range s.sweeps {
		c.later(func() { line.settled(told) })
	}
	s.sweeps = nil
	return false
}

// regroupBy puts a job under the constraints of now.
func (c *machine) regroupBy(r *record) {
	before := r.groups.groups()
	c.constraints.leave(r)
	c.constraints.enter(r)
	if slices.Equal(before, r.groups.groups()) {
		return
	}
	if r.waits() {
		c.regroup(r)
	} else {
		r.stale = true
	}
}

// fit leaves out groups beyond what the broker takes. It is for jobs that wait while
// constraints are added; new ones are refused.
func (c *machine) fit(groups []string) []string {
	return groups[:min(len(groups), c.maxGroups)]
}

// regroup tells the broker the groups of a job that waits.
func (c *machine) regroup(r *record) {
	if !r.inLine {
		return
	}
	id, groups := r.ID, c.fit(r.groups.groups())
	if groups == nil {
		groups = []string{}
	}
	line := c.out.line
	c.later(func() { line.change(id, groups, false) })
}
