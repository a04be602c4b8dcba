// Package look has what a jobd tells people of itself and its rows, as it goes over the wire:
// from a worker to its master, and from the master to its page.
package look

import (
	"encoding/json"
	"time"
)

// Daemon is what a worker tells of itself without asking the database.
type Daemon struct {
	// Table names the table: workers of one table do the same rows.
	Table   string   `json:"table"`
	Targets []Target `json:"targets"`
	Manual  int      `json:"manual"`  // jobs that a run-manual waits for
	Trouble string   `json:"trouble"` // why it cannot work; "" if it can
	// Runs are how many rows took up to so many seconds, by Bounds; the last is of those that
	// took longer.
	Bounds []float64 `json:"bounds"`
	Runs   []uint64  `json:"runs"`
}

// Target is one at a worker. Accepted, OK and Fail count rows since the worker started.
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

// Waiting is how many rows of a table wait: to be fetched, and to be run by hand.
type Waiting struct {
	Waiting []Count `json:"waiting"`
	Manual  []Count `json:"manual"`
}

// Count is how many rows of a target are in a state.
type Count struct {
	Target string     `json:"target"`
	Rows   int        `json:"rows"`
	More   bool       `json:"more"`   // there are more than Rows, or may be
	Oldest *time.Time `json:"oldest"` // when the first one was created; nil if the table does not tell
}

// Query asks for rows of a target in a state, and perhaps with a result. Rows that have ended
// come with the latest first, others in the order of their ids.
type Query struct {
	Target string `json:"target"`
	Status string `json:"status"`
	Result string `json:"result,omitempty"` // "" is any
	From   int64  `json:"from,omitempty"`   // where a List before has ended; 0 is the start
	Limit  int    `json:"limit"`            // from 1 to MostRows
}

// MostRows is the largest Limit of a Query.
const MostRows = 200

// List has rows that fit, maybe none although there is a Next.
type List struct {
	Items []Row  `json:"items"`
	Next  *int64 `json:"next"` // nil: there are no more
}

// Row is what is short of a row.
type Row struct {
	ID       int64      `json:"id"`
	Target   string     `json:"target"`
	Status   string     `json:"status"`
	Result   *string    `json:"result"`
	Code     *int       `json:"code"`
	Signal   *string    `json:"signal"`
	Priority *int64     `json:"priority"` // nil where the table has none
	Created  *time.Time `json:"created_at"`
	Started  *time.Time `json:"started_at"`
	Finished *time.Time `json:"finished_at"`
}

// Detail is a row with the ends of its outputs and the user's columns.
type Detail struct {
	Row
	Stdout      string          `json:"stdout"`
	StdoutBytes int64           `json:"stdout_bytes"` // of the whole
	Stderr      string          `json:"stderr"`
	StderrBytes int64           `json:"stderr_bytes"`
	Fields      json.RawMessage `json:"fields"` // an object, where long texts are cut
}
