package sim

import (
	"math"
	"slices"
	"strings"

	"gloom/broker"
)

// frame is a frame that a peer must get. Only the parts that the protocol defines are compared:
// an empty reason stands for any text.
type frame struct {
	op          broker.Op
	code        broker.Code
	peer        int
	id          string
	typ         string
	body        []byte
	reason      string
	state       string
	headers     []byte
	creditSpent bool
	delay       int64       // for a job that is to be retried later or is given back
	run         int         // the number of the borrowed job, in frames for a lender
	loan        broker.Loan // in a job frame for a borrower
}

// jobState is the state of a job that holds its id.
type jobState string

const (
	delayed jobState = "delayed"
	queued  jobState = "queued"
	running jobState = "running"
	ended   jobState = "ended" // a kept outcome
)

// oracleJob is a job that holds its id.
type oracleJob struct {
	command // the submit, with later changes; token says which submitters may attach
	// arrival orders jobs of the same age.
	arrival int
	owner   int // the number of a submitter; 0 if none waits for the job
	// lost reports that the owner disconnected while the job ran, cancelled that the job was
	// cancelled while it ran, and revoked that an operator cancelled it and its outcome will be
	// kept.
	lost, cancelled, revoked bool
	last                     frame // its last frame, once it has ended
	sent                     bool  // the last frame was sent
	releases                 int
	origin                   int // the submitter that the job came from

	submittedAt, stateSince int64
	state                   jobState
	until                   int64 // when the delay, or the time for which the outcome is kept, ends
	expires                 int64 // 0: no deadline
	attempts                int
	worker                  int
	// deadlineSeq orders deadlines of the same time by when they were set.
	deadlineSeq int
	// outcomeBytes is the size of the outcome that is kept once the job has ended.
	outcomeBytes int
	// borrowed reports that the job is another broker's, and holds no id.
	borrowed bool
}

func (j *oracleJob) unwanted() bool { return j.lost || j.cancelled }

func (j *oracleJob) weight() int64 {
	if j.state == ended {
		return int64(len(j.id)+j.outcomeBytes) + broker.JobOverhead
	}
	return j.command.weight()
}

// weight returns the weight of the job of a submit.
func (c *command) weight() int64 {
	return int64(len(c.id)+len(c.headers)+len(c.body)+len(strings.Join(c.groups, ""))) + broker.JobOverhead
}

// before reports whether j goes first if both are ready.
func (j *oracleJob) before(k *oracleJob) bool {
	switch {
	case j.priority != k.priority:
		return j.priority > k.priority
	case j.submittedAt != k.submittedAt:
		return j.submittedAt < k.submittedAt
	}
	return j.arrival < k.arrival
}

// due returns the next moment at which a timer changes the job.
func (j *oracleJob) due() (int64, bool) {
	switch {
	case j.state == running:
		return j.stateSince + int64(j.timeout), j.timeout > 0
	case j.state == ended:
		return j.until, true
	case j.state == delayed && (j.expires == 0 || j.until < j.expires):
		return j.until, true
	}
	return j.expires, j.expires != 0
}

// run is a job that is out on a worker, or an overdue run.
type run struct {
	id  string
	job *oracleJob // nil once the run is overdue
}

type oraclePeer struct {
	number int
	kind   senders
	token  uint64

	joined bool
	// The worker serves the types that match types, do not match except, and are in allow. If the
	// worker joined with one type alone, typ is that type.
	typ           string
	types, except []string
	allow         string
	headers       bool
	room          int
	credit        int // how many more bytes of jobs it may be sent; it gets jobs while this is above 0
	named         bool
	notices       bool
	left          bool
	out           []run
	position      int // place in the line of workers with room, 0 if it is not in line; a smaller one means idle for longer
}

// serves reports whether a joined worker serves a type.
func (p *oraclePeer) serves(typ string) bool {
	matches := func(pattern string) bool { return fits(pattern, typ) }
	return slices.ContainsFunc(p.types, matches) && !slices.ContainsFunc(p.except, matches) &&
		(p.allow == "" || strings.Contains(p.allow, typ))
}

// joinedAs reports whether p joined with the same types as x.
func (p *oraclePeer) joinedAs(x *oraclePeer) bool {
	sorted := func(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
	return p.joined && p.typ == x.typ && p.allow == x.allow &&
		slices.Equal(sorted(p.types), sorted(x.types)) && slices.Equal(sorted(p.except), sorted(x.except))
}

// names returns the types that the worker named in its join and serves. It leaves out types that
// only a pattern matches.
func (p *oraclePeer) names() (names []string) {
	for _, t := range p.types {
		if !strings.Contains(t, "*") && p.serves(t) && !slices.Contains(names, t) {
			names = append(names, t)
		}
	}
	return names
}

// fits reports whether a name fits a pattern, in which * is any number of any characters.
func fits(pattern, s string) bool {
	if pattern == "" || s == "" {
		return strings.Trim(pattern, "*") == "" && s == ""
	}
	if pattern[0] == '*' {
		return fits(pattern[1:], s) || fits(pattern, s[1:])
	}
	return pattern[0] == s[0] && fits(pattern[1:], s[1:])
}

func (p *oraclePeer) overdue() int {
	n := 0
	for _, r := range p.out {
		if r.job == nil {
			n++
		}
	}
	return n
}

// free reports whether the worker may be sent a job.
func (p *oraclePeer) free() bool {
	return p.joined && !p.left && len(p.out) < p.room && p.overdue() == 0 && p.credit > 0
}

type oracleType struct {
	name          string
	broker.Ledger // the counts of delayed, queued and running jobs are not kept here
	paused        bool
	concurrency   int
	rate          float64
	burst         int
	rateState     rateState
	// rateMayLag reports that the rate has held jobs back since the last tick: if it would allow a job
	// again, the core may not have noticed.
	rateMayLag bool
	// fair reports that tenants take turns.
	fair bool
}

// oracle is a model of the broker, written from the protocol's text.
type oracle struct {
	cfg      broker.Config
	now      int64
	jobs     []*oracleJob // by arrival
	jobsByID map[string]*oracleJob
	// borrowed are other brokers' jobs that run here.
	borrowed []*oracleJob
	peers    []*oraclePeer
	types    map[string]*oracleType
	names    []string // the names of the types, in the order in which they first came
	// forgotten adds up the counts of the types that the core forgot.
	forgotten broker.Ledger

	lastNumber int // what nextNumber returned last
	handOutSeq int // the deadlineSeq of a job that the first frame of this command hands out

	rules        map[string]broker.Rule   // by pattern
	ruleSetAt    map[string]int64         // when each rule was set
	rates        map[ruleGroup]*rateState // the rates of rules, by rule and group
	handedByType map[string]int           // how many borrowed jobs this command has handed out, by type
	// commands counts commands. tenantTurns has the number of the command in which a tenant of
	// a fair type was last served or, if it was not served yet, came.
	commands    int
	tenantTurns map[tenantKey]int

	letters     []*letter // the letters of all types, by age
	letterCount int       // how many there have been so far
	draining    bool
	stopped     bool
	// vanished is an upper bound of the waiting jobs of lost submitters that no tick has swept
	// yet.
	vanished int
	ticking  bool
	lastTick int64 // the time of the last tick

	// leftToTick holds the jobs past their deadline that the core has left to the next tick.
	leftToTick map[*oracleJob]bool

	observed observation
	frames   []frame
	// complaint describes a forbidden choice of the core, if there was one.
	complaint string
}

func newOracle(cfg broker.Config) *oracle {
	return &oracle{cfg: cfg, jobsByID: map[string]*oracleJob{}, handedByType: map[string]int{}, rules: map[string]broker.Rule{}, ruleSetAt: map[string]int64{}, rates: map[ruleGroup]*rateState{}, tenantTurns: map[tenantKey]int{}, leftToTick: map[*oracleJob]bool{}, types: map[string]*oracleType{}}
}

// moment returns the time at which the core carries out a command. Time never goes back, and
// some commands have no time of their own.
func (o *oracle) moment(c *command) int64 {
	switch c.verb {
	case addSubmitter, addWorker, addLender, follow, drain:
		return o.now
	}
	return max(o.now, c.now)
}

// do carries out a command. It stores the expected frames in o.frames.
func (o *oracle) do(c *command, observed observation) {
	for _, ot := range o.types {
		if _, latest := ot.rateState.opensBetween(ot.quota()); ot.rate > 0 && latest > o.now {
			ot.rateMayLag = true
		}
	}
	o.now = o.moment(c)
	o.frames, o.observed, o.complaint = o.frames[:0], observed, ""
	o.observed.now = o.now
	if o.ticking = c.verb == tick; o.ticking {
		o.lastTick = o.now
	}
	o.commands++
	clear(o.handedByType)
	// A command of a peer that is not connected, or is of another kind, does nothing.
	if from := verbs[c.verb].from; from == 0 || from == newcomers || from == lenders || o.hasKind(c.peer, from) {
		verbs[c.verb].do(o, c)
	}
	o.lineUp()
	o.handOut()
	o.updateTenants()
	o.forgetGroups()
	o.forgetTypes()
}

// hasKind reports whether a peer is connected and of one of these kinds.
func (o *oracle) hasKind(number int, kinds senders) bool {
	p := o.peer(number)
	return p != nil && p.kind&kinds != 0
}

// senderKinds are the kinds of the peers that verbs connect.
var senderKinds = [numVerbs]senders{addSubmitter: submitters, addWorker: workers, addBorrower: borrowers, addLender: lenders}

// connect adds a connection.
func (o *oracle) connect(c *command) {
	p := &oraclePeer{number: c.peer, kind: senderKinds[c.verb], token: c.token, room: 1, credit: math.MaxInt}
	switch {
	case p.kind == borrowers:
		o.typeNamed(c.typ)
		p.joined, p.types, p.room = true, []string{c.typ}, 0
		p.named, p.notices, p.headers = true, true, true
	case o.cfg.Credit > 0:
		p.credit = int(o.cfg.Credit)
	}
	o.peers = append(o.peers, p)
}

// nextNumber returns a number that is larger than all previous numbers.
func (o *oracle) nextNumber() int {
	o.lastNumber++
	return o.lastNumber
}

func (o *oracle) send(f frame) { o.frames = append(o.frames, f) }

func (o *oracle) ok(peer int, id string) { o.send(frame{op: broker.OpOK, peer: peer, id: id}) }

func (o *oracle) refuse(peer int, c broker.Code, id string) {
	o.send(frame{op: broker.OpRefuse, peer: peer, code: c, id: id})
}

// end ends a job without an answer, with an error.
func (o *oracle) end(j *oracleJob, c broker.Code, reason string) {
	o.conclude(j, frame{op: broker.OpEnd, code: c, id: j.id, reason: reason})
}

func (o *oracle) peer(number int) *oraclePeer {
	for _, p := range o.peers {
		if p.number == number {
			return p
		}
	}
	return nil
}

// connectedCount returns how many peers of a kind are connected.
func (o *oracle) connectedCount(kind senders) (n int) {
	for _, p := range o.peers {
		if p.kind == kind {
			n++
		}
	}
	return n
}

func (o *oracle) typeNamed(name string) *oracleType {
	ot := o.types[name]
	if ot == nil {
		ot = &oracleType{name: name}
		o.types[name] = ot
		o.names = append(o.names, name)
	}
	return ot
}

// forget removes a job that has ended.
func (o *oracle) forget(j *oracleJob) {
	if j.borrowed {
		o.borrowed = slices.DeleteFunc(o.borrowed, func(x *oracleJob) bool { return x == j })
		return
	}
	delete(o.jobsByID, j.id)
	i := slices.Index(o.jobs, j)
	o.jobs = slices.Delete(o.jobs, i, i+1)
}

// total returns how many of these jobs match, and their weight.
func total(jobs []*oracleJob, matches func(*oracleJob) bool) (n int, bytes int64) {
	for _, j := range jobs {
		if matches(j) {
			n++
			bytes += j.weight()
		}
	}
	return n, bytes
}

// countIn returns how many jobs of a type are in a state.
func (o *oracle) countIn(s jobState, typ string) int {
	n, _ := total(o.jobs, func(j *oracleJob) bool { return j.state == s && j.typ == typ })
	return n
}

// active returns how many jobs of a type run, borrowed ones included.
func (o *oracle) active(typ string) int {
	n, _ := total(o.borrowed, ofType(typ))
	return n + o.countIn(running, typ)
}

func ofType(typ string) func(*oracleJob) bool {
	return func(j *oracleJob) bool { return j.typ == typ }
}

func ownedBy(peer int) func(*oracleJob) bool {
	return func(j *oracleJob) bool { return j.owner == peer }
}
