package store

import "gloom/cmd/jq-master/job"

// keys holds the names of a namespace's keys in Redis. The braces in them put all keys into one slot
// of a cluster.
type keys struct {
	prefix, lease, seq, epoch, live, ended, results, workers, constraints, schedules, idems, standbys, clock string
}

func keysOf(namespace string) keys {
	p := "jq:{" + namespace + "}:"
	return keys{p, p + "lease", p + "seq", p + "epoch", p + "live", p + "ended", p + "results", p + "workers", p + "constraints", p + "schedules", p + "idems", p + "standbys", p + "clock"}
}

func (k *keys) job(id job.ID) string {
	const tail = len("job:") + 36
	b := make([]byte, 0, len(k.prefix)+tail)
	return string(id.Append(append(append(b, k.prefix...), "job:"...)))
}

func (k *keys) idempotency(name string) string { return k.prefix + "idem:" + name }
