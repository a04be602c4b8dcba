package job

// MaxConstraintID is the longest id of a constraint, in bytes.
const MaxConstraintID = 200

// Constraint limits the jobs that its matcher selects, by Rate, Concurrency, or both.
type Constraint struct {
	ID          string  `json:"id"`
	Match       []byte  `json:"match"`       // MessagePack, as it was given
	Rate        float64 `json:"rate"`        // hand-outs a second, 0 for no limit
	Burst       int64   `json:"burst"`       // 1 or more; 0 without a rate
	Concurrency int64   `json:"concurrency"` // runs at once, 0 holds all, -1 for no limit
	Per         string  `json:"per"`         // JSON Pointer; "" for one bucket for all
	Enabled     bool    `json:"enabled"`
	Version     uint64  `json:"version"` // increased by each change; sent as the ETag
}
