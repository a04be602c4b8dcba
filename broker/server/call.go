package server

import (
	"context"
	"encoding/binary"

	"gloom/broker"
	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/wire"
)

// Call is a job that comes over HTTP: a submitter of its own, without a socket. It
// is not safe for concurrent use.
type Call struct {
	// Job is what was handed in, once Submit has succeeded.
	Job struct {
		ID, Type string
		Delayed  bool
	}

	srv   *Server
	grant *guard.Grant
	peer  *hub.Conn
	sink  *hub.Sink
	wake  chan struct{}
	dec   wire.ClientDecoder
	out   hub.Output // taken, and perhaps not given back
	at    int        // where in it the next frame begins
}

// Call lets a submitter in, who is what the grant says. It has to be closed.
func (s *Server) Call(g *guard.Grant, remote, client string) *Call {
	c := &Call{srv: s, grant: g, wake: make(chan struct{}, 1)}
	c.sink = s.hub.NewSink(hub.Owner{Wake: func() { notify(c.wake) }})
	c.peer = s.hub.Open(wire.SubmitPort, c.sink, c, remote)
	c.peer.SetClient(brief([]byte(client), maxClient))
	if g != nil {
		s.hub.Do(func(b *broker.Broker, _ int64) []broker.Effect {
			b.SetOwner(c.peer.Peer(), g.Owner())
			return nil
		})
	}
	return c
}

// Submit hands in the job of a frame's payload, which must not change any more. It
// must not say "ack": false.
func (c *Call) Submit(payload []byte) *wire.Error {
	s := c.srv
	d := wire.Decoder{DefaultType: s.defaultType, MaxGroups: s.opt.MaxJobGroups}
	m := hub.Command{Kept: true}
	if err := decode(&d, &m, payload, c.peer); err != nil {
		return err
	}
	if err := permit(c.grant, &m); err != nil {
		return err
	}
	c.Job.ID, c.Job.Type = wire.Value(m.Req.ID), wire.Value(m.Req.Type)
	c.Job.Delayed = m.Req.DelayMS > 0
	s.hub.Step(c.peer, []hub.Command{m}, c.sink)
	ev, err := c.next(context.Background())
	if err != nil {
		return err
	}
	if ev.Kind == wire.EventError {
		return failure(ev)
	}
	return nil
}

// Answer waits for the end of the job. What it returns is good until Close. Of a kept
// job the outcome is kept until Written says that it has been delivered.
func (c *Call) Answer(ctx context.Context) ([]byte, *wire.Error) {
	for {
		ev, err := c.next(ctx)
		switch {
		case err != nil:
			return nil, err
		case ev.Kind == wire.EventResult:
			return ev.Body, nil
		case ev.Kind == wire.EventError:
			return nil, failure(ev)
		}
	}
}

// Written tells that what Answer returned has been delivered.
func (c *Call) Written() { c.sink.Done(&c.out, 0, 0) }

// Close ends the call. A job that is neither detached nor kept ends with it.
func (c *Call) Close() { c.srv.hub.Gone(c.peer) }

// next returns the next frame. Its error is that of ctx, without a code, or tells
// that the broker has closed the connection.
func (c *Call) next(ctx context.Context) (*wire.Event, *wire.Error) {
	if c.at == len(c.out.Buf) {
		if err := c.take(ctx); err != nil {
			return nil, err
		}
	}
	begin := c.at + 4
	end := begin + int(binary.BigEndian.Uint32(c.out.Buf[c.at:]))
	if r := c.out.Refs; len(r) > 0 && r[0].At < end {
		// The answer to the one job that there is.
		c.at = len(c.out.Buf)
		return &wire.Event{Kind: wire.EventResult, Body: r[0].Body}, nil
	}
	c.at = end
	var ev wire.Event
	if err := c.dec.Decode(c.out.Buf[begin:end], &ev); err != nil {
		return nil, &wire.Error{Code: wire.InvalidJSON, Reason: err.Error()}
	}
	return &ev, nil
}

// take waits for output.
func (c *Call) take(ctx context.Context) *wire.Error {
	closed := &wire.Error{Code: wire.Draining, Reason: "the broker has closed the connection of this request"}
	if c.out.Conn != nil {
		c.Written() // an ok
	}
	if c.out.Close {
		return closed
	}
	outs := c.sink.Take(nil)
	for ; len(outs) == 0; outs = c.sink.Take(nil) {
		select {
		case <-c.wake:
		case <-ctx.Done():
			return &wire.Error{Reason: context.Cause(ctx).Error()}
		}
	}
	if c.out, c.at = outs[0], 0; c.out.Abort || len(c.out.Buf) == 0 {
		return closed
	}
	c.peer.Writing(c.out.Len(), c.out.Len()) // whoever called goes on to do so
	return nil
}

func failure(ev *wire.Event) *wire.Error {
	code, _ := wire.ParseCode(ev.Code)
	return &wire.Error{Code: code, Reason: ev.Reason}
}
