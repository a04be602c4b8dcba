package server

import (
	"context"
	"math"

	"gloom/broker/guard"
	"gloom/broker/hub"
	"gloom/wire"
)

// Call is a submitter without a socket, for one job that is submitted over HTTP. It is not safe
// for concurrent use.
type Call struct {
	// Job describes the submitted job, once Submit has succeeded.
	Job struct {
		ID, Type string
		Delayed  bool
	}

	srv     *Server
	grant   *guard.Grant
	hubConn *hub.Conn
	sink    *hub.Sink
	wake    chan struct{}
	output  hub.Output
}

// Call opens a Call with the rights of a grant. The caller must close it.
func (s *Server) Call(grant *guard.Grant, remote, client string) *Call {
	c := &Call{srv: s, grant: grant, wake: make(chan struct{}, 1)}
	c.sink = s.hub.NewSink(hub.SinkOwner{Unframed: true, Wake: func() { notify(c.wake) }})
	c.hubConn = s.hub.Open(wire.SubmitPort, c.sink, c, remote)
	c.hubConn.SetClientName(hub.Truncate(client, maxClientName))
	return c
}

// Submit submits a job. payload is the payload of a submit frame; it must not change any more,
// and must not have "ack":false.
func (c *Call) Submit(payload []byte) *wire.Error {
	s := c.srv
	d := wire.Decoder{DefaultType: s.defaultType, MaxGroups: s.options.MaxJobGroups}
	cmd := hub.Command{From: c.hubConn, StableBody: true}
	if c.grant != nil {
		cmd.Owner = c.grant.Owner()
	}
	if err := decodeCommand(&d, &cmd, payload, c.hubConn); err != nil {
		return err
	}
	if err := checkPermitted(c.grant, &cmd); err != nil {
		return err
	}
	c.Job.ID, c.Job.Type = wire.Value(cmd.Req.ID), wire.Value(cmd.Req.Type)
	c.Job.Delayed = cmd.Req.DelayMS > 0
	c.sink.Step([]hub.Command{cmd}, nil)
	if err := c.wait(context.Background(), func() bool { return c.output.Unframed.WasAccepted || c.output.Unframed.FailureCode != 0 }); err != nil {
		return err
	}
	if !c.output.Unframed.WasAccepted {
		return &wire.Error{Code: c.output.Unframed.FailureCode, Reason: string(c.answerText())}
	}
	return nil
}

// Answer waits for the end of the job. Its result is valid until Close. The outcome of a kept
// job stays kept until Written reports that the result has been delivered.
func (c *Call) Answer(ctx context.Context) ([]byte, *wire.Error) {
	if err := c.wait(ctx, func() bool { return c.hubConn.UnreadBytes() > 0 }); err != nil {
		return nil, err
	}
	if c.output.Unframed.FailureCode != 0 {
		return nil, &wire.Error{Code: c.output.Unframed.FailureCode, Reason: string(c.answerText())}
	}
	return c.answerText(), nil
}

// answerText returns the answer or the reason that has arrived, which is always in one piece.
func (c *Call) answerText() []byte {
	parts, _ := c.hubConn.NextParts(make([][]byte, 0, 1), math.MaxInt)
	return parts[0]
}

// MarkDelivered reports that what Answer returned has been delivered.
func (c *Call) MarkDelivered() { c.hubConn.MarkWritten(c.hubConn.UnreadBytes()) }

// Close ends the call. A job that is neither detached nor kept ends with it.
func (c *Call) Close() { c.srv.hub.Remove(c.hubConn) }

// wait waits until enough reports true. Its error is that of ctx, without a code, or has the
// code Draining if the broker has closed the connection.
func (c *Call) wait(ctx context.Context, enough func() bool) *wire.Error {
	for !enough() {
		if c.output.Close || c.output.Abort {
			return &wire.Error{Code: wire.Draining, Reason: "the broker has closed the connection of this request"}
		}
		if outs := c.sink.Take(); len(outs) > 0 {
			c.output = outs[0]
			continue
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return &wire.Error{Reason: context.Cause(ctx).Error()}
		}
	}
	return nil
}
