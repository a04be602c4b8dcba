package main

import (
	"context"

	"github.com/goccy/go-json"
)

// What the broker tells operators, as far as it is shown here; --json passes on
// all that was sent.

type typeInfo struct {
	Type       string   `json:"type"`
	Paused     bool     `json:"paused"`
	Limits     limits   `json:"limits"`
	Queued     uint64   `json:"queued"`
	Delayed    uint64   `json:"delayed"`
	Running    uint64   `json:"running"`
	Workers    int      `json:"workers"`
	Idle       int      `json:"idle"`
	Submitters int      `json:"submitters"`
	Dead       int      `json:"dead"`
	Oldest     float64  `json:"oldest_seconds"`
	Wait       []uint64 `json:"wait_log2_us"`
	Ledger     ledger   `json:"ledger"`
}

type limits struct {
	Concurrency int     `json:"concurrency"`
	Rate        float64 `json:"rate"`
}

type ledger struct {
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

// ended counts the jobs that are over.
func (l *ledger) ended() uint64 {
	return l.Answered + l.Failed + l.Cancelled + l.Expired + l.Discarded
}

type peer struct {
	Number  uint64  `json:"number"`
	Address string  `json:"address"`
	Client  string  `json:"client"`
	Seconds float64 `json:"connected_seconds"`
}

type workerInfo struct {
	peer
	Type     string   `json:"type"`
	Prefetch int      `json:"prefetch"`
	Out      int      `json:"out"`
	Overdue  int      `json:"overdue"`
	Left     bool     `json:"left"`
	Idle     float64  `json:"idle_seconds"`
	Jobs     []string `json:"jobs"`
}

type submitterInfo struct {
	peer
	Jobs  int   `json:"jobs"`
	Bytes int64 `json:"bytes"`
	Types int   `json:"types"`
}

type jobInfo struct {
	ID         string   `json:"id"`
	Type       string   `json:"type"`
	State      string   `json:"state"`
	Priority   int64    `json:"priority"`
	Attempts   int      `json:"attempts"`
	Retries    int      `json:"retries"`
	Bytes      int64    `json:"bytes"`
	Detached   bool     `json:"detached"`
	Unwanted   bool     `json:"unwanted"`
	Age        float64  `json:"age_seconds"`
	In         float64  `json:"in_state_seconds"`
	Due        *float64 `json:"due_seconds"`
	Ahead      *int     `json:"ahead"`
	AheadExact *bool    `json:"ahead_exact"`
	Holds      string   `json:"holds"`
	Submitter  *peer    `json:"submitter"`
	Worker     *peer    `json:"worker"`
}

type deadJob struct {
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Reason   string          `json:"reason"`
	Priority int64           `json:"priority"`
	Attempts int             `json:"attempts"`
	Bytes    int64           `json:"bytes"`
	Age      float64         `json:"failed_seconds_ago"`
	Body     json.RawMessage `json:"body"`
}

type brokerStatus struct {
	Version    string           `json:"version"`
	Uptime     float64          `json:"uptime_seconds"`
	Draining   bool             `json:"draining"`
	Submitters int              `json:"submitters"`
	Workers    int              `json:"workers"`
	Types      int              `json:"types"`
	Dead       int              `json:"dead"`
	StoreBytes int64            `json:"store_bytes"`
	Ledger     ledger           `json:"ledger"`
	Imbalance  int64            `json:"imbalance"`
	Limits     map[string]int64 `json:"limits"`
}

// listOf reads up to most items of a listing.
func listOf[T any](ctx context.Context, a *api, path string, most int) (items []T, more bool, err error) {
	more, err = a.list(ctx, path, most, func(raw json.RawMessage) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return err
		}
		items = append(items, v)
		return nil
	})
	return items, more, err
}
