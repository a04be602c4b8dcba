package serverless

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gloom/bench/door"
	"gloom/bench/poll"
)

// measureAdding runs clients that add lines, one request after another, and checks that all lines
// are in the store. One thread serves all clients, because it shares the processors with the
// daemon.
func (d *daemon) measureAdding(ctx context.Context, r *Round, clients, lines int, duration time.Duration) error {
	body := bytes.Repeat([]byte("0123456789abcdef0123456789abcdef\n"), lines)
	loop, err := poll.New(time.Now())
	if err != nil {
		return err
	}
	end, clientsLeft, done := int64(duration), clients, make(chan error, clients)
	var times []time.Duration
	stopped := make(chan error, 1)
	go func() { stopped <- loop.Run(func(int64) int64 { return -1 }) }()
	defer loop.Stop()
	meter := d.startMeter()
	var failed error
	finish := func(err error) {
		failed = errors.Join(failed, err)
		if clientsLeft--; clientsLeft == 0 {
			done <- failed
		}
	}
	loop.Do(func() {
		for range clients {
			at := int64(0) // when the last answer arrived and the request was sent; the first counts as sent at 0
			c := &door.Requester{Head: door.Head{Method: "POST", Path: "/bench/job/idle"}, Want: 200, Fail: finish}
			c.Answered = func(now int64) {
				times = append(times, time.Duration(now-at))
				at = now
			}
			c.Next = func() []byte {
				if at < end {
					return body
				}
				finish(nil)
				return nil
			}
			if err := c.Dial(loop, d.client.Addr); err != nil {
				finish(err)
			}
		}
	})
	select {
	case err = <-done:
	case err := <-stopped:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration + answerTimeout):
		return fmt.Errorf("an answer takes more than %v", answerTimeout)
	}
	r.recordMeter(meter)
	if err != nil {
		return err
	}
	r.Jobs = len(times) * lines
	slices.Sort(times)
	r.P50, r.P99 = times[len(times)/2], times[len(times)*99/100]
	return d.checkAdded(ctx, "idle", r.Jobs)
}
