package job

// MaxConstraintID bounds the id of a constraint in bytes.
const MaxConstraintID = 200

// Constraint limits the jobs that its matcher picks. Rate or Concurrency is there,
// or both.
type Constraint struct {
	ID          string
	Match       []byte  // MessagePack, as it was given
	Rate        float64 // hand-outs a second, 0 for no limit
	Burst       int64   // 1 or more; 0 when there is no rate
	Concurrency int64   // runs at once, 0 holds all, -1 for no limit
	Per         string  // JSON Pointer; "" for one bucket for all
	Enabled     bool
	Version     uint64 // rises with each change; the ETag
}
