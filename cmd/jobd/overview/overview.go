// Package overview defines the messages in which a jobd describes itself and its rows: a worker
// sends them to its master, and the master to its page.
package overview

import (
	"encoding/json"
	"time"
)

// Daemon holds what a worker knows about itself without asking the database.
type Daemon struct {
	// Table names the table: workers with the same table run the same rows.
	Table   string   `json:"table"`
	Targets []Target `json:"targets"`
	Manual  int      `json:"manual"`  // jobs for which a run-manual waits
	Trouble string   `json:"trouble"` // why it cannot work; "" if it can
	Refused string   `json:"refused"` // which rows the database refuses, and why; "" for none
	// Runs counts rows by the time that they ran, in buckets with these upper Bounds in seconds;
	// the last bucket has no bound.
	Bounds []float64 `json:"bounds"`
	Runs   []uint64  `json:"runs"`
}

// Target is a target at one worker. Accepted, OK and Fail count rows since the worker started.
type Target struct {
	Target      string `json:"target"`
	Paused      bool   `json:"paused"`
	Concurrency int    `json:"concurrency"`
	Queued      int    `json:"queued"`
	Running     int    `json:"running"`
	Accepted    uint64 `json:"accepted"`
	OK          uint64 `json:"ok"`
	Fail        uint64 `json:"fail"`
}

// Waiting counts the rows of a table that wait to be fetched, and the rows that wait to be run by
// hand.
type Waiting struct {
	Waiting []Count `json:"waiting"`
	Manual  []Count `json:"manual"`
}

// Count is the number of rows of a target in a state.
type Count struct {
	Target string     `json:"target"`
	Rows   int        `json:"rows"`
	More   bool       `json:"more"`   // there are, or may be, more than Rows
	Oldest *time.Time `json:"oldest"` // when the first row was created; nil if the table has no time of creation
}

// Query asks for the rows of a target that have a status and, unless Result is "", a result. Rows
// that have ended are listed latest first, others by id.
type Query struct {
	Target string `json:"target"`
	Status string `json:"status"`
	Result string `json:"result,omitempty"` // "" for any
	From   int64  `json:"from,omitempty"`   // the Next of an earlier List; 0 for the start
	Limit  int    `json:"limit"`            // from 1 to MaxRows
}

// MaxRows is the largest Limit of a Query.
const MaxRows = 200

// List holds the rows that match. It may be empty although there is a Next.
type List struct {
	Items []Row  `json:"items"`
	Next  *int64 `json:"next"` // nil if there are no more
}

// Row holds the short columns of a row.
type Row struct {
	ID       int64      `json:"id"`
	Target   string     `json:"target"`
	Status   string     `json:"status"`
	Result   *string    `json:"result"`
	Code     *int       `json:"code"`
	Signal   *string    `json:"signal"`
	Priority *int64     `json:"priority"` // nil if the table has no priority
	Created  *time.Time `json:"created_at"`
	Started  *time.Time `json:"started_at"`
	Finished *time.Time `json:"finished_at"`
}

// Detail is a row with the ends of its outputs and the user's columns.
type Detail struct {
	Row
	Stdout      string          `json:"stdout"`
	StdoutBytes int64           `json:"stdout_bytes"` // length of the whole output
	Stderr      string          `json:"stderr"`
	StderrBytes int64           `json:"stderr_bytes"`
	Fields      json.RawMessage `json:"fields"` // an object; long texts are cut
}
