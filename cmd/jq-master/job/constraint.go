package job

// MaxConstraintID is the longest id of a constraint, in bytes. The page pauses a name by a constraint
// with the id "paused NAME".
const MaxConstraintID = len("paused ") + MaxNameBytes

// Constraint limits the jobs that its matcher selects, by Rate, Concurrency, or both.
type Constraint struct {
	ID          string  `json:"id"`
	Match       []byte  `json:"match"`       // MessagePack, as it was given
	Rate        float64 `json:"rate"`        // hand-outs per second; 0 means no limit
	Burst       int64   `json:"burst"`       // size of the token bucket, at least 1; 0 without a rate
	Concurrency int64   `json:"concurrency"` // number of runs at once; 0 holds back all jobs, -1 means no limit
	Per         string  `json:"per"`         // JSON Pointer to the value whose jobs are limited together; "" limits all jobs together
	Enabled     bool    `json:"enabled"`
	Version     uint64  `json:"version"` // increased by each change; sent as the ETag
}
