// Package api has the types of the requests and answers of /v1, for the broker's HTTP side
// and for Go programs that use it. openapi.json describes the same.
package api

import "encoding/json"

// Error is the body of every answer that reports a failure.
type Error struct {
	Status int    `json:"-"`
	Code   string `json:"error"`
	Reason string `json:"reason"`
	// ID and State describe the submitted job, if the error occurred after its submission.
	ID    string `json:"id,omitempty"`
	State string `json:"state,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Reason }

// List is a page of a listing. Next is the ?cursor= of the next page; it is nil at the end.
type List[T any] struct {
	Items []T  `json:"items"`
	Next  *int `json:"next,omitempty"`
}

// EndedList is a page of ended jobs. Cursor is the ?cursor= of the next page; it is nil at the end.
type EndedList struct {
	Items  []Ended `json:"items"`
	Cursor *int    `json:"cursor,omitempty"`
}

// Ledger counts jobs by outcome since the start: Submitted is the sum of all other fields.
type Ledger struct {
	Submitted uint64 `json:"submitted"`
	Delayed   uint64 `json:"delayed"`
	Queued    uint64 `json:"queued"`
	Running   uint64 `json:"running"`
	Answered  uint64 `json:"answered"`
	Failed    uint64 `json:"failed"`
	Cancelled uint64 `json:"cancelled"`
	Expired   uint64 `json:"expired"`
	Discarded uint64 `json:"discarded"`
}

// Ended returns how many jobs have ended.
func (l *Ledger) Ended() uint64 {
	return l.Answered + l.Failed + l.Cancelled + l.Expired + l.Discarded
}

// Limits bound the running jobs of a type; 0 means no limit.
type Limits struct {
	// Concurrency is how many jobs may run at a time.
	Concurrency int `json:"concurrency"`
	// Rate limits the jobs that are dispatched per second. Burst is the number of jobs that may be
	// dispatched at once; without a burst, jobs are evenly spaced.
	Rate  float64 `json:"rate"`
	Burst int     `json:"burst"`
}

// Fair is the body of PUT of a type: whether its tenants take turns.
type Fair struct {
	Fair bool `json:"fair"`
}

// RuleLimits are the limits of each group that matches a pattern; nil means not set.
type RuleLimits struct {
	// Concurrency limits the group's jobs that run at a time; with 0, none run.
	Concurrency *int64 `json:"concurrency,omitempty"`
	// Rate limits the group's jobs that are dispatched per second. Burst is the number of jobs that
	// may be dispatched at once.
	Rate  *float64 `json:"rate,omitempty"`
	Burst *int64   `json:"burst,omitempty"`
}

// Rule is the rule of a pattern.
type Rule struct {
	Pattern string `json:"pattern"`
	RuleLimits
	// Persisted reports that the rule is in the limits file. Otherwise it ends with the process.
	Persisted bool `json:"persisted"`
}

// Group is a group with jobs in it.
type Group struct {
	Group string `json:"group"`
	// Waiting counts the group's delayed and queued jobs. Held counts its queued jobs that a rule
	// of any of their groups holds back.
	Waiting int `json:"waiting"`
	Running int `json:"running"`
	Held    int `json:"held"`
	// Rule is the pattern of a rule that lets no more of its jobs run now.
	Rule string `json:"rule,omitempty"`
}

// Groups are all rules and the busiest groups, busiest first. The groups of a single type
// come without rules.
type Groups struct {
	Rules  []Rule  `json:"rules,omitempty"`
	Groups []Group `json:"groups"`
}

// Type is a type of jobs and its figures.
type Type struct {
	Type       string `json:"type"`
	Paused     bool   `json:"paused"`
	Fair       bool   `json:"fair"` // tenants take turns
	Limits     Limits `json:"limits"`
	Queued     uint64 `json:"queued"`
	Delayed    uint64 `json:"delayed"`
	Running    uint64 `json:"running"`
	Workers    int    `json:"workers"`
	Idle       int    `json:"idle"` // workers with room for a job
	Submitters int    `json:"submitters"`
	Bytes      int64  `json:"bytes"`
	Dead       int    `json:"dead"`
	// OldestSeconds is the age of the oldest queued job.
	OldestSeconds float64 `json:"oldest_seconds"`
	Dispatched    uint64  `json:"dispatched"`
	Requeued      uint64  `json:"requeued"`
	// Releases is how often workers released a job of it (gave it back unrun).
	Releases uint64 `json:"releases"`
	Overdue  uint64 `json:"overdue"`
	// Wait is a histogram of waits since the start: element i counts those of less than 2^i
	// µs, and at least half of it. It is absent in sorted listings.
	Wait []uint64 `json:"wait_log2_us,omitempty"`
	// Run is the same histogram of runs. It is present only when a single type is
	// requested.
	Run    []uint64 `json:"run_log2_us,omitempty"`
	Ledger Ledger   `json:"ledger"`
	// Rates are absent in unsorted listings and until the broker has taken two snapshots.
	Rates *Rates `json:"rates,omitempty"`
}

// Unserved reports whether jobs of the type wait although no worker, not even one of another
// broker, serves the type or runs one of its jobs.
func (t *Type) Unserved() bool { return t.Queued > 0 && t.Workers == 0 && t.Running == 0 }

// Rates are jobs a second, averaged over the last few seconds.
type Rates struct {
	In     float64 `json:"in"`  // submitted
	Out    float64 `json:"out"` // ended, with any outcome
	Failed float64 `json:"failed"`
}

// TypeList is a page of types. Count is the number of matching types, if the list is sorted
// or filtered.
type TypeList struct {
	List[Type]
	Count *int `json:"count,omitempty"`
}

// Moment holds the sums of all types at one time, in milliseconds since 1970.
type Moment struct {
	UnixMS    int64  `json:"unix_ms"`
	Submitted uint64 `json:"submitted"`
	Ended     uint64 `json:"ended"`
	Failed    uint64 `json:"failed"`
	Queued    uint64 `json:"queued"`
	Running   uint64 `json:"running"`
}

// History is the rates of a type, or of all types, in steps that begin at From. Each array has one
// value for each step; the last value is that of the current step. Nil means unknown.
type History struct {
	StepMS int64  `json:"step_ms"`
	From   string `json:"from"` // RFC 3339
	// Submitted counts the jobs that were submitted in each step. Answered, Failed and Other (cancelled,
	// expired, discarded) count those that ended in it.
	Submitted []*float64 `json:"in"`
	Answered  []*float64 `json:"answered"`
	Failed    []*float64 `json:"failed"`
	Other     []*float64 `json:"other"`
	// Queued and Running are the jobs at the end of each step.
	Queued  []*float64 `json:"queued"`
	Running []*float64 `json:"running"`
	// WaitP50 and WaitP95 are estimated quantiles of the waits of the jobs that were dispatched in
	// each step; RunP50 and RunP95 are quantiles of the runs that ended in the step.
	WaitP50 []*float64 `json:"wait_p50_ms"`
	WaitP95 []*float64 `json:"wait_p95_ms"`
	RunP50  []*float64 `json:"run_p50_ms"`
	RunP95  []*float64 `json:"run_p95_ms"`
}

// Look is a snapshot of the whole broker, with its busiest types.
type Look struct {
	Draining    bool    `json:"draining"`
	Submitters  int     `json:"submitters"`
	Workers     int     `json:"workers"`
	Types       int     `json:"types"`
	Groups      int     `json:"groups"`
	Dead        int     `json:"dead"`
	MemoryBytes int64   `json:"memory_bytes"` // counted against max_memory
	UnreadBytes int64   `json:"unread_bytes"` // sent to peers, not read yet
	Jobs        int64   `json:"jobs"`         // counted against max_jobs
	Conns       int64   `json:"connections"`  // counted against max_conns
	Ledger      Ledger  `json:"ledger"`
	Imbalance   int64   `json:"imbalance"`
	Rates       *Rates  `json:"rates,omitempty"`
	Oldest      float64 `json:"oldest_seconds"` // age of the oldest queued job of all types
	// FailedHour counts the jobs that have failed in the last hour, or since the broker's start if
	// that is later.
	FailedHour uint64 `json:"failed_hour"`
	// Wait and Run are as in Type, but for all types together.
	Wait []uint64 `json:"wait_log2_us"`
	Run  []uint64 `json:"run_log2_us"`
	Top  []Type   `json:"top"`
	// Findings are the first findings of GET /v1/findings; only the first of several that are
	// alike is listed.
	Findings Findings `json:"findings"`
}

// Peer is the client at the other end of a connection.
type Peer struct {
	Number  uint64  `json:"number"`
	Address string  `json:"address"`
	Client  string  `json:"client,omitempty"`
	Seconds float64 `json:"connected_seconds"`
	// Gone reports that its connection is closed. The address is then known only if the connection is
	// among the last closed ones.
	Gone bool `json:"gone,omitempty"`
	// Broker is the broker of the fleet that the job is or was lent to. Such a peer has no
	// connection.
	Broker string `json:"broker,omitempty"`
}

// Job is a job and its state.
type Job struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	State    string `json:"state"` // delayed, queued, running or, for a kept outcome, ended
	Priority int64  `json:"priority"`
	// Attempts counts how often the job was dispatched. Retries is how often it may be dispatched
	// again after the first time.
	Attempts int  `json:"attempts"`
	Retries  int  `json:"retries"`
	Bytes    int  `json:"bytes"` // of its body
	Detached bool `json:"detached"`
	// KeepMS is how long the job's outcome is kept after its end, in milliseconds.
	KeepMS int64    `json:"keep_ms"`
	Groups []string `json:"groups"`
	// Releases is how often a worker released it (gave it back unrun).
	Releases int `json:"releases"`
	// Unwanted reports that it is running, but its submitter is gone or has cancelled it.
	Unwanted   bool    `json:"unwanted"`
	AgeSeconds float64 `json:"age_seconds"`
	// InSeconds is how long it has been in this state.
	InSeconds float64 `json:"in_state_seconds"`
	// DueSeconds is the time until the job's delay ends, its run times out or its deadline passes;
	// nil if none of these applies.
	DueSeconds *float64 `json:"due_seconds,omitempty"`
	// ExpiresSeconds is the time until the job's deadline, if there is one.
	ExpiresSeconds *float64 `json:"expires_seconds,omitempty"`
	// Ahead is the number of ready jobs that come before this job. If AheadExact is false, Ahead is
	// only a lower bound: there are very many jobs, or tenants take turns, or groups are held back.
	Ahead      *int  `json:"ahead,omitempty"`
	AheadExact *bool `json:"ahead_exact,omitempty"`
	// Holds names what a waiting job waits for.
	Holds string `json:"holds,omitempty"`
	// HeldBy names the group whose rule holds it back.
	HeldBy    *HeldBy `json:"held_by,omitempty"`
	Submitter *Peer   `json:"submitter,omitempty"`
	Worker    *Peer   `json:"worker,omitempty"`
	// Outcome is how a job ended: answered, or the code of its error. Reason says why it
	// has no answer.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// End is present if it has ended and the history still has it.
	*End
	// Runs are its last 16 ended runs that are remembered, oldest first; absent in
	// listings.
	Runs []Run `json:"runs,omitempty"`
	// Headers and Body (of an ended job, its answer) are present if the request asks for
	// them.
	Headers json.RawMessage `json:"headers,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// Run is a run that has ended.
type Run struct {
	N      int   `json:"n"` // the number of the run, from 1; a run that was given back is not counted
	Worker *Peer `json:"worker"`
	// StartedAt is when the run began; see End for the format.
	StartedAt string `json:"started_at"`
	RanMS     int64  `json:"ran_ms"`
	// Outcome is answered, failed, lost (with its worker), timed_out or released (given back). It is
	// cancelled or discarded if the job was cancelled or discarded during the run.
	Outcome string `json:"outcome"`
	// Error is the first KiB of the reason why it has no answer.
	Error string `json:"error,omitempty"`
	// BrokerLost reports that the run was lost with the broker to which it was lent.
	BrokerLost bool `json:"broker_lost,omitempty"`
}

// End says when a job ended and how long it took. Times are RFC 3339 in UTC with milliseconds.
type End struct {
	SubmittedAt string `json:"submitted_at"`
	// StartedAt is when the run that ended the job began; nil if no run ended it.
	StartedAt *string `json:"started_at"`
	EndedAt   string  `json:"ended_at"`
	// WaitedMS is the time from the submission to StartedAt or, without it, to the end; RanMS is
	// the time from StartedAt to the end.
	WaitedMS   int64 `json:"waited_ms"`
	RanMS      int64 `json:"ran_ms"`
	Size       int   `json:"size"`        // bytes of its body
	AnswerSize int   `json:"answer_size"` // bytes of its answer
}

// Ended is a job that has ended, from the history.
type Ended struct {
	ID        string   `json:"id"`
	Type      string   `json:"type"`
	State     string   `json:"state"` // ended
	Groups    []string `json:"groups"`
	Submitter *Peer    `json:"submitter,omitempty"` // absent: it was detached
	// Outcome is answered, failed, cancelled, expired or discarded; Reason says why it has no
	// answer.
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"`
	Attempts int    `json:"attempts"`
	End
	// Runs are its last 16 runs, oldest first; absent in listings.
	Runs []Run `json:"runs,omitempty"`
}

// A finding has one of these severities.
const (
	Severe  = "severe"  // jobs do not progress, or clients are refused
	Warning = "warning" // an operator should look
	Info    = "info"    // worth knowing
)

// Finding says why jobs do not progress, or soon will not.
type Finding struct {
	Severity string `json:"severity"`
	// Kind says what Subject names: a type, a group, the broker, or a client (by its own name
	// or its address; Number and Address describe its connection, and Worker distinguishes a
	// worker from a submitter).
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Number  uint64 `json:"number,omitempty"`
	Address string `json:"address,omitempty"`
	Worker  bool   `json:"worker,omitempty"`
	// Cause is a stable word for programs. If it is limit, Limit names the flag.
	Cause string `json:"cause"`
	Limit string `json:"limit,omitempty"`
	// Finding describes the problem, Advice the remedy.
	Finding string `json:"finding"`
	Advice  string `json:"advice"`
	// AlikeCount is how many more findings differ only in their subject and are not listed (Look).
	AlikeCount int `json:"alike,omitempty"`
	// Since is when the condition was first seen (RFC 3339). If a condition is reported only
	// after it has lasted, Since is the time of the last snapshot without it.
	Since string `json:"since"`
}

// Findings is a list of findings, the most severe first. More counts the findings that are not in
// the list.
type Findings struct {
	Items []Finding `json:"items"`
	More  int       `json:"more,omitempty"`
	// Counts are the numbers of all findings, by severity.
	Counts Severities `json:"counts"`
}

// Severities counts findings by severity.
type Severities struct {
	Severe  int `json:"severe"`
	Warning int `json:"warning"`
	Info    int `json:"info"`
}

// Demand is the work of a type: its queued and running jobs.
type Demand struct {
	Demand uint64 `json:"demand"`
}

// JobFilter selects the jobs of a request. An empty filter needs All.
type JobFilter struct {
	// State is delayed, queued or running; if empty, delayed and queued jobs match.
	State string `json:"state,omitempty"`
	ID    string `json:"id,omitempty"` // substring of the id
	Group string `json:"group,omitempty"`
	Older int64  `json:"older,omitempty"` // minimum time since it was submitted, in milliseconds
	// Submitter and Worker are numbers of peers.
	Submitter uint64 `json:"submitter,omitempty"`
	Worker    uint64 `json:"worker,omitempty"`
	All       bool   `json:"all,omitempty"`
	// Most limits how many jobs are cancelled; 0 sets no limit.
	Most int `json:"most,omitempty"`
}

// DeadFilter selects the failed jobs of a request. An empty filter needs All.
type DeadFilter struct {
	ID     string `json:"id,omitempty"`     // substring of the id
	Reason string `json:"reason,omitempty"` // substring of the reason
	Older  int64  `json:"older,omitempty"`  // minimum time since it failed, in milliseconds
	All    bool   `json:"all,omitempty"`
	Most   int    `json:"most,omitempty"` // how many may be changed, 0 for all
}

// Many is the result of a change to all jobs that match a filter.
type Many struct {
	Before int `json:"before"` // matched at the start
	Done   int `json:"done"`
	After  int `json:"after"` // match at the end
	// Refused counts the jobs that could not be retried. Reason explains the first refusal.
	Refused int    `json:"refused,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Forgotten counts the jobs that were discarded when their type was forgotten.
type Forgotten struct {
	Type      string `json:"type"`
	Discarded int    `json:"discarded"` // waiting jobs
	Dead      int    `json:"dead"`
	Outcomes  int    `json:"outcomes"` // kept outcomes
}

// Submission is a job to submit.
type Submission struct {
	ID        string          `json:"id,omitempty"`   // generated if empty
	Type      string          `json:"type,omitempty"` // the broker's default if empty
	Body      json.RawMessage `json:"body"`
	Priority  int64           `json:"priority,omitempty"`
	Groups    []string        `json:"groups,omitempty"`
	Headers   json.RawMessage `json:"headers,omitempty"`
	DelayMS   int64           `json:"delay_ms,omitempty"`
	TimeoutMS int64           `json:"timeout_ms,omitempty"`
	BackoffMS int64           `json:"backoff_ms,omitempty"`
	ExpiresMS int64           `json:"expires_ms,omitempty"`
	Retries   *int            `json:"retries,omitempty"`
	// KeepMS is how long the outcome is kept, in milliseconds. If it is 0, the outcome is not
	// reported.
	KeepMS int64 `json:"keep_ms,omitempty"`
	AgeMS  int64 `json:"age_ms,omitempty"`
}

// Submitted is a submitted job: delayed, queued or, with its answer, answered.
type Submitted struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	State string `json:"state"`
	// Body is the answer.
	Body json.RawMessage `json:"body,omitempty"`
}

// HeldBy is a group that holds a job back, and the pattern of its rule.
type HeldBy struct {
	Group string `json:"group"`
	Rule  string `json:"rule"`
}

// Change is the body of PATCH of a job; nil fields stay unchanged.
type Change struct {
	Priority *int64 `json:"priority,omitempty"`
	// Groups are its new groups.
	Groups *[]string `json:"groups,omitempty"`
	// DelayMS is the new delay from now, in milliseconds; 0 makes it ready.
	DelayMS *int64 `json:"delay_ms,omitempty"`
}

// State is the state of a job after a request that changed it: delayed, queued, running,
// cancelled, unwanted (it still runs, its result is dropped), forgotten (a kept outcome) or
// discarded (a failed job).
type State struct {
	ID    string `json:"id"`
	State string `json:"state"`
}

// DeadJob is a failed job that is kept.
type DeadJob struct {
	// No is its number. Jobs of any type that failed later have larger numbers.
	No       int    `json:"no"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Reason   string `json:"reason"`
	Priority int64  `json:"priority"`
	Attempts int    `json:"attempts"`
	Bytes    int    `json:"bytes"` // of its body
	// FailedSeconds is how long ago it failed.
	FailedSeconds float64 `json:"failed_seconds_ago"`
	// Body is absent in listings.
	Body json.RawMessage `json:"body,omitempty"`
}

// Worker is a worker's connection.
type Worker struct {
	Peer
	Type     string `json:"type,omitempty"` // the type, if it serves a single one
	Types    int    `json:"types"`          // how many types it serves
	Prefetch int    `json:"prefetch"`
	// Out counts the jobs that the worker holds. Overdue counts those that have passed their
	// timeout but still take up the worker's room.
	Out         int      `json:"out"`
	Overdue     int      `json:"overdue"`
	Left        bool     `json:"left"`
	Silent      bool     `json:"silent"` // it gets no jobs until it answers a ping, or reads; of a door: it has not requested jobs, or does not answer
	IdleSeconds float64  `json:"idle_seconds"`
	Jobs        []string `json:"jobs"` // ids of the first 16 that it holds
	// Serves are the first 16 names and patterns of the types that it serves.
	Serves      []string `json:"serves"`
	UnreadBytes int      `json:"unread_bytes"` // sent, not read yet
}

// Submitter is a submitter's connection.
type Submitter struct {
	Peer
	Jobs  int   `json:"jobs"`
	Bytes int64 `json:"bytes"`
	Types int   `json:"types"` // of its jobs, in the latest 1,024 combinations of a type and groups
	// TypeNames are the first 16 types of its jobs.
	TypeNames   []string `json:"type_names"`
	UnreadBytes int      `json:"unread_bytes"` // sent, not read yet
}

// Status describes the broker as a whole.
type Status struct {
	Version       string  `json:"version"`
	UptimeSeconds float64 `json:"uptime_seconds"`
	Draining      bool    `json:"draining"`
	Submitters    int     `json:"submitters"`
	Workers       int     `json:"workers"`
	Types         int     `json:"types"`
	// Dead counts the failed jobs that are kept, and DeadBytes is the memory that they take.
	// DeadDropped counts failed jobs that were dropped because a limit was reached: dead_letters for
	// one type, or dead_bytes for all types.
	Dead        int              `json:"dead"`
	DeadBytes   int64            `json:"dead_bytes"`
	DeadDropped uint64           `json:"dead_dropped"`
	StoreBytes  int64            `json:"store_bytes"`
	Ledger      Ledger           `json:"ledger"`
	Imbalance   int64            `json:"imbalance"`
	Limits      map[string]int64 `json:"limits"`
	Links       []Link           `json:"links"`
	Fleet       bool             `json:"fleet"` // the broker is a member of a fleet
	// Scopes are the scopes of this request's token: submit, admin, watch.
	Scopes []string `json:"scopes"`
}

// Link is another page, such as a door's.
type Link struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Draining answers a request to drain.
type Draining struct {
	Draining bool `json:"draining"`
}

// Fleet is the state of a broker in its fleet. If it is not in a fleet, Member is false and all
// other fields are empty.
type Fleet struct {
	Member bool   `json:"member"`
	Name   string `json:"name,omitempty"`
	Epoch  string `json:"epoch,omitempty"` // a number that changes with each start of the broker
	// Alone reports that another broker had this name first.
	Alone bool  `json:"alone,omitempty"`
	NATS  *NATS `json:"nats,omitempty"`
	// Lent jobs are at other brokers, Borrowed jobs come from others and run here. The
	// totals count since the start: Returned jobs came back unrun, Lost jobs were at
	// brokers that were lost, and Late results came after the loan had ended.
	Lent     int           `json:"lent"`
	Borrowed int           `json:"borrowed"`
	Lends    uint64        `json:"lends_total"`
	Borrows  uint64        `json:"borrows_total"`
	Returned uint64        `json:"returned_total"`
	Lost     uint64        `json:"lost_total"`
	Late     uint64        `json:"late_total"`
	Brokers  []FleetBroker `json:"brokers"`
}

// NATS is the connection that carries the fleet's messages.
type NATS struct {
	Connected    bool    `json:"connected"`
	SinceSeconds float64 `json:"since_seconds"` // time since NATS was connected or lost
	URL          string  `json:"url,omitempty"`
	Reason       string  `json:"reason,omitempty"` // why NATS is away
}

// FleetBroker is another broker of the fleet.
type FleetBroker struct {
	Name  string `json:"name"`
	Epoch string `json:"epoch"`
	// State is joining, up, draining, or foreign: its Version of the fleet's messages
	// differs from this broker's.
	State       string   `json:"state"`
	Version     uint64   `json:"version,omitempty"`
	RoundTripMS *float64 `json:"round_trip_ms,omitempty"` // round trip of the last heartbeat
	HeardMS     float64  `json:"heard_ms"`                // time since its last heartbeat
	Lent        int      `json:"lent"`                    // to it
	Borrowed    int      `json:"borrowed"`                // from it
	// Wants are the types that its idle workers serve, up to 100 sets.
	Wants []FleetWant `json:"wants"`
}

// FleetWant is a set of idle workers of a broker: how many places they have (counted up to
// 1,024) for jobs of these types and patterns.
type FleetWant struct {
	Types  []string `json:"types"`
	Places int      `json:"places"`
}
