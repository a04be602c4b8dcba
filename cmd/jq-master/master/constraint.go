package master

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"gloom/broker"
	"gloom/cmd/jq-master/job"
)

// maxValues limits the values of "per" that a constraint tells apart. All further values count as one.
const maxValues = 100_000

// selector decides to which jobs a constraint applies, and with which value each job counts.
type selector struct {
	match   func(*job.Attributes) bool
	valueOf func(*job.Attributes) []byte // the value of "per", as bytes that are equal for equal values; nil: all jobs count together
}

// constraint sets rules for groups at the broker, and counts the jobs in them. Its selector never
// changes: a new constraint replaces a constraint whose selector is to change.
type constraint struct {
	job.Constraint
	selector
	groupPrefix string            // how the names of its groups begin: with the namespace and the id
	number      uint64            // no other constraint has, or had, this number
	removed     bool              // the constraint was replaced or dropped, but some jobs may still be in its groups
	jobsByValue map[valueHash]int // how many jobs have each value; nil without per

	matching, running int
	// After a restart the token buckets of its values fill slowly (see emptyBuckets). phase is the current phase, which
	// ends at phaseAt.
	phase   phase
	phaseAt int64
}

type phase uint8

const (
	phaseFull        phase = iota // the rule as configured
	phaseEmpty                    // no tokens
	phaseSingleToken              // one token
)

// The kinds of limits that a constraint can have. Names of groups begin with them.
const (
	concurrencyKind byte = 'c'
	rateKind        byte = 'r'
)

var limitKinds = []byte{concurrencyKind, rateKind}

// valueHash is the hash of a value of "per".
type valueHash [16]byte

// sharedValue stands for all values beyond maxValues.
var sharedValue = valueHash{'s'}

// membership is a constraint that applies to a job, and the value with which the job counts.
type membership struct {
	constraint *constraint
	value      valueHash
}

// constraintSet is the set of constraints that apply to a job. Jobs with the same constraints and
// values share a set.
type constraintSet struct {
	key     string
	members []membership
	jobs    int
	// groupNames holds the broker's groups of these jobs. runningGroups holds those of a running job,
	// without the groups of rates, because the job has already taken its tokens.
	groupNames, runningGroups []string
}

// constraints holds all constraints, and the progress of the sweep that applies them to waiting
// jobs.
type constraints struct {
	byID        map[string]*constraint
	sets        map[string]*constraintSet
	lastNumber  uint64
	lastVersion uint64                        // the largest version that was given to a constraint
	enabled     []*constraint                 // the enabled ones, by id; the slice is replaced, never changed
	enabledCopy atomic.Pointer[[]*constraint] // a copy of enabled for readers without the lock
	sweeping    []*constraint                 // the constraints of enabled that the sweep applies; this slice is never changed either
	sweepIndex  int                           // index in machine.bySeq of the next job of the sweep; -1: there is no sweep
	onSweepEnd  []func()                      // functions to be called when the sweep ends
	keyBuffer   []byte                        // buffer for the key of a set
}

func newConstraints() *constraints {
	return &constraints{byID: make(map[string]*constraint), sets: make(map[string]*constraintSet), sweepIndex: -1}
}

// updateEnabled updates enabled. It must be called whenever a constraint has been added, dropped or
// replaced.
func (s *constraints) updateEnabled() {
	s.enabled = s.enabled[:0:0]
	for _, k := range s.byID {
		if k.Enabled {
			s.enabled = append(s.enabled, k)
		}
	}
	slices.SortFunc(s.enabled, func(a, b *constraint) int { return cmp.Compare(a.ID, b.ID) })
	list := s.enabled
	s.enabledCopy.Store(&list)
}

// isSameSlice reports whether two lists are the same slice.
func isSameSlice(a, b []*constraint) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// matchAll returns the constraints of a list that apply to a job, except those in known. It may have
// to walk through a large argument, and needs no lock.
func matchAll(list []*constraint, a *job.Attributes, known *constraintSet) (members []membership) {
	for _, k := range list {
		if known.contains(k) || !k.match(a) {
			continue
		}
		m := membership{constraint: k}
		if k.valueOf != nil {
			sum := sha256.Sum256(k.valueOf(a))
			copy(m.value[:], sum[:])
		}
		members = append(members, m)
	}
	return members
}

// countGroups returns the number of the broker's groups of a job with these memberships.
func countGroups(members []membership) (n int) {
	for i := range members {
		for _, kind := range limitKinds {
			if members[i].constraint.hasRule(kind) {
				n++
			}
		}
	}
	return n
}

// setFor returns the set with these members, which must be sorted by id; nil if there are none.
func (s *constraints) setFor(members []membership) *constraintSet {
	if len(members) == 0 {
		return nil
	}
	key := s.keyBuffer[:0]
	for i := range members {
		m := &members[i]
		key = binary.AppendUvarint(key, m.constraint.number)
		if m.constraint.valueOf == nil {
			continue
		}
		if m.constraint.jobsByValue[m.value] == 0 && len(m.constraint.jobsByValue) >= maxValues {
			m.value = sharedValue
		}
		key = append(key, m.value[:]...)
	}
	s.keyBuffer = key
	if known := s.sets[string(key)]; known != nil {
		return known
	}
	created := &constraintSet{key: string(key), members: slices.Clone(members)}
	for _, m := range members {
		if m.constraint.hasRule(concurrencyKind) {
			created.runningGroups = append(created.runningGroups, m.constraint.group(concurrencyKind, m.value))
		}
	}
	created.groupNames = slices.Clone(created.runningGroups)
	for _, m := range members {
		if m.constraint.hasRule(rateKind) {
			created.groupNames = append(created.groupNames, m.constraint.group(rateKind, m.value))
		}
	}
	return created
}

// add gives a job a set of constraints.
func (s *constraints) add(r *record, g *constraintSet) {
	if r.constraints = g; g == nil {
		return
	}
	if g.jobs++; g.jobs == 1 {
		s.sets[g.key] = g
	}
	g.count(r, 1)
}

// remove removes a job from its set.
func (s *constraints) remove(r *record) {
	g := r.constraints
	if g == nil {
		return
	}
	g.count(r, -1)
	if g.jobs--; g.jobs == 0 {
		delete(s.sets, g.key)
	}
	r.constraints = nil
}

// contains reports whether a constraint is in a set.
func (g *constraintSet) contains(k *constraint) bool {
	return g != nil && slices.ContainsFunc(g.members, func(m membership) bool { return m.constraint == k })
}

func (g *constraintSet) count(r *record, delta int) {
	for i := range g.members {
		m := &g.members[i]
		k := m.constraint
		k.matching += delta
		if r.State == job.Running {
			k.running += delta
		}
		if k.valueOf == nil {
			continue
		}
		k.jobsByValue[m.value] += delta
		if k.jobsByValue[m.value] == 0 {
			delete(k.jobsByValue, m.value)
		}
	}
}

// groups returns the broker's groups of the jobs with this set; g may be nil.
func (g *constraintSet) groups() []string {
	if g == nil {
		return nil
	}
	return g.groupNames
}

// groupPrefixOf returns the prefix that the names of a constraint's groups have. Masters of other
// namespaces may use the same broker. Two different pairs of namespace and id never give the same
// prefix, because escaped parts have no colon.
func groupPrefixOf(namespace, id string) string { return escape(namespace) + ":" + escape(id) }

// constraintOf returns the id of the constraint that a group belongs to; ok is false if the group
// does not belong to this namespace.
func constraintOf(namespace, group string) (id string, ok bool) {
	parts := strings.Split(group, ":")
	if len(parts) < 3 || parts[0] != string(concurrencyKind) && parts[0] != string(rateKind) || parts[1] != escape(namespace) {
		return "", false
	}
	id, err := url.PathUnescape(parts[2])
	return id, err == nil
}

// group returns the name of the constraint's group for a kind of limit and a value. Concurrency
// and rate have separate groups, so that a running job can be in the group for concurrency alone.
func (k *constraint) group(kind byte, value valueHash) string {
	if k.valueOf == nil {
		return k.pattern(kind)
	}
	return string(kind) + ":" + k.groupPrefix + ":" + hex.EncodeToString(value[:])
}

// pattern returns a pattern that matches exactly the constraint's groups of one kind.
func (k *constraint) pattern(kind byte) string {
	name := string(kind) + ":" + k.groupPrefix
	if k.valueOf != nil {
		name += ":*"
	}
	return name
}

// patternCount returns how many rules with a * the constraint has at the broker.
func (k *constraint) patternCount() (n int) {
	for _, kind := range limitKinds {
		if k.Enabled && k.Per != "" && k.hasRule(kind) {
			n++
		}
	}
	return n
}

// escape escapes the characters that have a meaning in patterns or separate the parts of a group's
// name.
var escape = strings.NewReplacer("%", "%25", "*", "%2A", ":", "%3A").Replace

// ruleChange is a request to set the rule of a pattern of groups, or to drop it.
type ruleChange struct {
	pattern     string
	drop        bool
	rate        float64 // 0: none
	burst       int64
	concurrency int64 // -1: none
}

// sendRules sends the current rules of a constraint to the broker.
func (m *machine) sendRules(k *constraint) {
	if k.Concurrency >= 0 {
		n := k.Concurrency
		m.sendRule(ruleChange{pattern: k.pattern(concurrencyKind), concurrency: n})
	}
	if k.Rate <= 0 {
		return
	}
	rule := ruleChange{pattern: k.pattern(rateKind), concurrency: -1, rate: k.Rate, burst: min(k.Burst, broker.MaxBurst)}
	switch k.phase {
	case phaseEmpty:
		rule.rate, rule.burst, rule.concurrency = 0, 0, 0
	case phaseSingleToken:
		rule.burst = 1
	}
	m.sendRule(rule)
}

func (m *machine) sendRule(change ruleChange) {
	m.tellBroker(func(b brokerLink) { b.setRule(change) })
}

// dropRules drops the rules that a constraint had.
func (m *machine) dropRules(k *constraint) {
	for _, kind := range limitKinds {
		if k.hasRule(kind) {
			m.sendRule(ruleChange{pattern: k.pattern(kind), drop: true})
		}
	}
}

// emptyBuckets makes the token buckets of a constraint begin empty, because after a restart it
// is unknown how many were taken. A bucket has no token until the first one is due, and then at
// most one until the bucket would be full.
func (m *machine) emptyBuckets(k *constraint) {
	if k.Rate > 0 {
		k.phase = phaseEmpty
		k.phaseAt = m.now + k.phaseLength()
	}
}

// phaseLength returns how many milliseconds the current phase takes, from its beginning, at the
// constraint's rate.
func (k *constraint) phaseLength() int64 {
	if k.phase == phaseEmpty {
		return secondsToMillis(1 / k.Rate)
	}
	return secondsToMillis(float64(k.Burst-1) / k.Rate)
}

// shortenPhase ends the current phase earlier if the constraint's rate, which has changed, fills the
// buckets earlier.
func (m *machine) shortenPhase(k *constraint) {
	if k.Rate > 0 && k.phase != phaseFull {
		k.phaseAt = min(k.phaseAt, m.now+k.phaseLength())
	}
}

// secondsToMillis converts seconds to milliseconds, at most 1e9 seconds.
func secondsToMillis(s float64) int64 {
	return int64(min(s, 1e9) * 1000)
}

// refill lets constraints whose buckets began empty enter their next phase when it is due.
func (m *machine) refill() {
	for _, k := range m.constraints.byID {
		if !k.Enabled || k.phase == phaseFull || m.now < k.phaseAt || !m.env.store.HoldsLease() {
			continue
		}
		if k.phase == phaseEmpty && k.Burst > 1 {
			k.phase = phaseSingleToken
			k.phaseAt = m.now + k.phaseLength()
		} else {
			k.phase = phaseFull
		}
		m.sendRules(k)
	}
}
