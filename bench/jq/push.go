package jq

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goccy/go-json"
	"golang.org/x/sync/errgroup"

	"gloom/bench/door"
)

// jobBody returns a job in MessagePack. The number of the job comes last, so that bodies differ only
// in the last four bytes.
func jobBody(o Options) []byte {
	b := append([]byte("\x82\xa4name\xa5bench\xa8argument\x82\xa3pad"), 0xda)
	b = binary.BigEndian.AppendUint16(b, uint16(o.Body))
	b = append(b, strings.Repeat("x", o.Body)...)
	return append(b, "\xa1n\xce\x00\x00\x00\x00"...)
}

// measurePush enqueues one job at a time and waits until all are done.
func (s *servers) measurePush(ctx context.Context, o Options, r *Round) error {
	b := newLedger(ctx, o.Jobs)
	defer b.fail(nil)
	w, err := startWorkers(s.master.Addr, o, b)
	if err != nil {
		return err
	}
	defer w.close()
	start := time.Now()
	if err := w.enqueue(ctx, o); err != nil {
		return err
	}
	if err := b.wait(); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	r.P50, r.P99 = b.latencyMS(50), b.latencyMS(99)
	return s.checkCounts(o.Jobs)
}

// batchSize is the largest number of jobs that one request may enqueue.
const batchSize = 1000

// measureBatches enqueues many jobs, numbered within their batch.
func (s *servers) measureBatches(ctx context.Context, jobs int, o Options) error {
	head := door.Head{Method: "POST", Path: "/jobs", Header: msgpack}
	client := door.NewClient(s.master.Addr, 0)
	jobsLeft := atomic.Int64{}
	jobsLeft.Store(int64(jobs))
	var pushers errgroup.Group
	for range min(o.Pushers, 4) {
		pushers.Go(func() error {
			for ctx.Err() == nil {
				n := jobsLeft.Add(-batchSize) + batchSize
				if n <= 0 {
					return nil
				}
				n = min(n, batchSize)
				text := binary.BigEndian.AppendUint16([]byte{0xdc}, uint16(n))
				body := jobBody(o)
				for i := range n {
					binary.BigEndian.PutUint32(body[len(body)-4:], uint32(i))
					text = append(text, body...)
				}
				if _, err := client.Do(head, text, http.StatusCreated); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return pushers.Wait()
}

// These are the headers of requests, by the type of their bodies.
var (
	msgpack  = map[string]string{"Content-Type": "application/msgpack"}
	jsonType = map[string]string{"Content-Type": "application/json"}
)

// checkCounts checks that the master counts want jobs as done.
func (s *servers) checkCounts(want int) error {
	text, err := door.NewClient(s.master.Addr, 0).Do(door.Head{Method: "GET", Path: "/v1/stats", Header: map[string]string{"Accept": "application/json"}}, nil, http.StatusOK)
	if err != nil {
		return err
	}
	var stats struct {
		States map[string]int `json:"states"`
	}
	if err := json.Unmarshal(text, &stats); err != nil {
		return err
	}
	if stats.States["done"] != want {
		return fmt.Errorf("the master counts %v, want %d done", stats.States, want)
	}
	return nil
}
