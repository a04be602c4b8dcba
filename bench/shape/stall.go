package shape

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"gloom/bench/brokers"
	"gloom/bench/load"
	"gloom/bench/result"
)

const (
	// giantSize is the payload of the large frame, a little below gloomd's limit.
	giantSize = 16<<20 - 1<<10
	// trickleChunk bytes of the giant frame are sent every trickleEvery.
	trickleChunk = 256 << 10
	trickleEvery = 5 * time.Millisecond
	// settleTime is the time for which measuring continues after a disturbance has ended, because
	// its effects may last longer.
	settleTime = 300 * time.Millisecond
)

// Stall probes a server at a fixed rate with jobs of one type while others do what may block it:
// fill a queue with Jobs jobs, scrape and list over HTTP, disconnect the submitter of those jobs, send a
// giant frame in small parts. The round has a sample for each of these, with the latency of the
// probe's jobs.
func Stall(ctx context.Context, srv *brokers.Server, opt Options) (*result.Round, error) {
	if !srv.Protocol.TracksPeers {
		return nil, wrapError(srv, "stall", errors.New("it keeps the jobs of a submitter that disconnects"))
	}
	backlog := opt.Jobs
	opt.Jobs = 0
	return runSession(ctx, srv, &opt, "stall", func(s *session) error { return s.stall(ctx, backlog) })
}

func (s *session) stall(ctx context.Context, backlog int64) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	flood, err := s.newFlood()
	if err != nil {
		return err
	}
	defer flood.Close()
	if err := flood.ConnectSubmitters(ctx); err != nil {
		return err
	}
	if err := s.startLoad(); err != nil {
		return err
	}
	if err := s.runFor(ctx, "warm up", s.options.Warmup, nil); err != nil {
		return err
	}
	start := time.Now()
	first, err := s.takeCheckpoint(true)
	if err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		fn   func(ctx context.Context) error
	}{
		{"nothing else", func(ctx context.Context) error { return sleep(ctx, s.options.Duration) }},
		{fmt.Sprintf("a submitter queues %d jobs", backlog), func(ctx context.Context) error {
			if _, err := flood.Submit(backlog, load.MaxOutstanding); err != nil {
				return err
			}
			_, err := flood.WaitAcked(ctx)
			return err
		}},
		{"they are queued", func(ctx context.Context) error { return sleep(ctx, s.options.Duration) }},
		{"metrics are scraped", func(ctx context.Context) error { return s.getRepeatedly(ctx, "/metrics") }},
		{"types are listed", func(ctx context.Context) error { return s.getRepeatedly(ctx, "/v1/types") }},
		{"jobs are listed", func(ctx context.Context) error { return s.getRepeatedly(ctx, "/v1/jobs") }},
		{"their submitter vanishes", func(context.Context) error { return flood.DisconnectSubmitters() }},
		{"a frame of 16 MiB trickles in", s.sendGiant},
	} {
		if err := s.runDisturbance(ctx, start, d.name, d.fn); err != nil {
			return fmt.Errorf("while %s: %w", d.name, err)
		}
	}
	last, err := s.takeCheckpoint(false)
	if err != nil {
		return err
	}
	return s.recordFigures(first, last)
}

// newFlood makes the generator of the submitter that fills the queue and disconnects.
func (s *session) newFlood() (*load.Generator, error) {
	cfg := s.options.config(s.server)
	cfg.Type, cfg.Submitters, cfg.Workers, cfg.Types, cfg.Loops, cfg.IdleWorkers = "flood", 1, 1, 1, 1, 0
	cfg.FirstSubmitter = load.MaxSubmitters - 1
	return load.New(cfg)
}

// runDisturbance runs one disturbance and records the probe's latency during it and shortly after.
func (s *session) runDisturbance(ctx context.Context, start time.Time, name string, fn func(context.Context) error) error {
	s.report(name, -1, 0, nil)
	from, err := s.generator.TakeSnapshot(true)
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, s.options.StepTimeout)
	defer cancel()
	err = fn(limit)
	if errors.Is(err, errNotSupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := sleep(ctx, settleTime); err != nil {
		return err
	}
	to, err := s.generator.TakeSnapshot(true)
	if err != nil {
		return err
	}
	return s.addSample(name, start, to.Totals.Answered-from.Totals.Answered, to.Latency)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// errNotSupported is the error of a disturbance that the server does not support.
var errNotSupported = errors.New("not supported")

// getRepeatedly requests a page repeatedly, for Duration.
func (s *session) getRepeatedly(ctx context.Context, path string) error {
	if s.server.HTTPAddr == "" {
		return errNotSupported
	}
	for end := time.Now().Add(s.options.Duration); time.Now().Before(end); {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.server.HTTPAddr+path, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode == http.StatusNotFound {
			return errNotSupported
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", path, resp.Status)
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// sendGiant submits one job of giant size in small parts.
func (s *session) sendGiant(ctx context.Context) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", s.server.SubmitAddr)
	if err != nil {
		return err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
	}
	frame := make([]byte, 0, giantSize+4)
	frame = binary.BigEndian.AppendUint32(frame, giantSize)
	frame = append(frame, `{"action":"submit","id":"giant","type":"giant","body":"`...)
	for len(frame) < giantSize+4-2 {
		frame = append(frame, 'x')
	}
	frame = append(frame, `"}`...)
	for len(frame) > 0 {
		n, err := c.Write(frame[:min(trickleChunk, len(frame))])
		if err != nil {
			return err
		}
		frame = frame[n:]
		if err := sleep(ctx, trickleEvery); err != nil {
			return err
		}
	}
	_, err = io.ReadFull(c, make([]byte, 4)) // any reply
	return err
}
