package jq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccy/go-json"
)

// body returns a job in MessagePack. The number of the job comes last, so that bodies differ only
// in the last four bytes.
func body(o Options) []byte {
	b := append([]byte("\x82\xa4name\xa5bench\xa8argument\x82\xa3pad"), 0xda)
	b = binary.BigEndian.AppendUint16(b, uint16(o.Body))
	b = append(b, strings.Repeat("x", o.Body)...)
	return append(b, "\xa1n\xce\x00\x00\x00\x00"...)
}

// measurePush enqueues one job at a time and waits until all are done.
func (s *servers) measurePush(ctx context.Context, o Options, r *Round) error {
	b := newLedger(o.Jobs)
	w, err := startWorkers(s.master.Addr, o, b)
	if err != nil {
		return err
	}
	defer w.close()
	start := time.Now()
	if err := w.enqueue(ctx, o); err != nil {
		return err
	}
	if err := b.wait(ctx); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	r.P50, r.P99 = b.quantile(50), b.quantile(99)
	return s.checkCounts(o.Jobs)
}

// batch is the largest number of jobs that one request may enqueue.
const batch = 1000

// measureBatches enqueues many jobs, numbered within their batch.
func (s *servers) measureBatches(ctx context.Context, jobs int, o Options) error {
	head := request("POST", "/jobs", "msgpack", "")
	left := atomic.Int64{}
	left.Store(int64(jobs))
	return s.eachConn(min(o.Pushers, 4), func(c *client) error {
		for ctx.Err() == nil {
			n := left.Add(-batch) + batch
			if n <= 0 {
				return nil
			}
			n = min(n, batch)
			text := binary.BigEndian.AppendUint16([]byte{0xdc}, uint16(n))
			one := body(o)
			for i := range n {
				binary.BigEndian.PutUint32(one[len(one)-4:], uint32(i))
				text = append(text, one...)
			}
			if _, err := c.expect(201, head, text); err != nil {
				return err
			}
		}
		return ctx.Err()
	})
}

// eachConn runs something on n connections at once.
func (s *servers) eachConn(n int, fn func(*client) error) error {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		c, err := dial(s.master.Addr)
		if err != nil {
			return err
		}
		wg.Go(func() {
			defer c.conn.Close()
			errs[i] = fn(c)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// checkCounts checks that the master counts want jobs as done.
func (s *servers) checkCounts(want int) error {
	c, err := dial(s.master.Addr)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	text, err := c.expect(200, request("GET", "/v1/stats", "json", "Accept: application/json\r\n"), nil)
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
