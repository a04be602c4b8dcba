package bridge

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"gloom/cmd/internal/daemon"
	"gloom/cmd/jobd/overview"
	"gloom/cmd/jobd/store"
)

// Overview implements control.Engine. Its counts are those of the metrics.
func (b *Bridge) Overview() overview.Daemon {
	targets, manual := b.targetStatus()
	c := b.cfg.MySQL
	l := overview.Daemon{Table: fmt.Sprintf("%s:%d%s/%s.%s", c.Host, c.Port, c.Socket, c.Database, c.Table), Manual: manual}
	for _, t := range targets {
		row := overview.Target{Target: t.Name, Paused: t.Paused, Concurrency: t.Concurrency, Queued: t.Queued, Running: t.Running}
		b.mu.Lock()
		isCounted := b.labelledTargets[t.Name]
		b.mu.Unlock()
		if isCounted {
			row.Accepted = counterValue(b.metrics.acceptedRows, t.Name, "poll") + counterValue(b.metrics.acceptedRows, t.Name, "hand")
			row.OK, row.Fail = counterValue(b.metrics.endedRows, t.Name, "ok"), counterValue(b.metrics.endedRows, t.Name, "fail")
		}
		l.Targets = append(l.Targets, row)
	}
	if err := b.Health(); err != nil {
		l.Trouble = err.Error()
	}
	if rows, id, err := b.writer.refusal(); rows == 1 {
		l.Refused = fmt.Sprintf("the database refuses a change of row %d: %v", id, err)
	} else if rows > 1 {
		l.Refused = fmt.Sprintf("the database refuses changes of %d rows, among them row %d: %v", rows, id, err)
	}
	l.Bounds, l.Runs = daemon.HistogramBuckets(b.metrics.runTime)
	return l
}

func counterValue(vec *prometheus.CounterVec, labels ...string) uint64 {
	return daemon.CounterValue(vec.WithLabelValues(labels...))
}

// Rows implements control.Engine.
func (b *Bridge) Rows() (store.Reader, error) {
	if r, ok := b.store.(store.Reader); ok {
		return r, nil
	}
	return nil, errors.New("the rows cannot be listed")
}
