package control

import (
	"context"
	"encoding/json"
	"fmt"

	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/overview"
	"gloom/cmd/jobd/peer"
	"gloom/cmd/jobd/store"
)

func (s server) getOverview(context.Context, *peer.Conn, json.RawMessage) (any, error) {
	return s.engine.Overview(), nil
}

// countWaiting returns how many rows wait to be fetched, and how many to be run by hand.
func (s server) countWaiting(ctx context.Context, _ *peer.Conn, _ json.RawMessage) (any, error) {
	rows, err := s.engine.Rows()
	if err != nil {
		return nil, err
	}
	served := s.engine.Targets()
	var out overview.Waiting
	if out.Waiting, err = rows.Counts(ctx, store.Waiting, served); err != nil {
		return nil, err
	}
	if out.Manual, err = rows.Counts(ctx, store.Manual, served); err != nil {
		return nil, err
	}
	return out, nil
}

func (s server) getRows(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	args, err := peer.Args(data, targetField, eot.Field{Name: "status", Types: "s", Required: true},
		eot.Field{Name: "result", Types: "s"}, eot.Field{Name: "from", Types: "i"}, eot.Field{Name: "limit", Types: "i", Required: true})
	if err != nil {
		return nil, err
	}
	from, _ := eot.Int64(args.Get("from"))
	limit, _ := eot.Integer(args.Get("limit"))
	if limit < 1 || limit > overview.MaxRows {
		return nil, fmt.Errorf("'limit' must be from 1 to %d", overview.MaxRows)
	}
	rows, err := s.engine.Rows()
	if err != nil {
		return nil, err
	}
	return rows.List(ctx, overview.Query{
		Target: eot.String(args.Get("target")), Status: eot.String(args.Get("status")), Result: eot.String(args.Get("result")),
		From: from, Limit: int(limit),
	})
}

func (s server) getRow(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	args, err := peer.Args(data, eot.Field{Name: "id", Types: "i", Required: true})
	if err != nil {
		return nil, err
	}
	rows, err := s.engine.Rows()
	if err != nil {
		return nil, err
	}
	id, _ := eot.Int64(args.Get("id"))
	d, err := rows.Detail(ctx, id)
	if err != nil || d == nil { // a response without data means that there is no such row
		return nil, err
	}
	return d, nil
}
