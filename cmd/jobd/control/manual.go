package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/peer"
)

func (s server) runManual(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	ids, unknown, err := manualIDs(data)
	if err != nil {
		return nil, err
	}
	var outcomes map[int64]JobResult
	errs := make(map[int64]string)
	if len(ids) > 0 {
		if outcomes, errs, err = s.engine.RunManual(ctx, ids); err != nil {
			return nil, err
		}
	}
	return manualJSON(outcomes, errs, unknown), nil
}

// manualIDs reads the ids, each once. unknown are the numbers that cannot be ids of rows.
func manualIDs(data json.RawMessage) (ids []int64, unknown []eot.Num, err error) {
	args, err := peer.Args(data, eot.Field{Name: "ids", Types: "a", Required: true})
	if err != nil {
		return nil, nil, err
	}
	elements := eot.Elements(args.Get("ids"))
	if len(elements) == 0 {
		return nil, nil, errors.New("ids are empty")
	}
	seen, seenUnknown := make(map[int64]bool, len(elements)), make(map[eot.Num]bool)
	for _, e := range elements {
		if t := eot.TypeOf(e); t != "number" {
			return nil, nil, fmt.Errorf("all ids must be numbers, got %s", t)
		}
		if id, ok := eot.Int64(e); ok && id >= 0 {
			if !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		} else if n, _ := eot.Number(e); !seenUnknown[n] {
			seenUnknown[n] = true
			unknown = append(unknown, n)
		}
	}
	return ids, unknown, nil
}

// manualJSON encodes the results of the jobs; an empty member is left out.
func manualJSON(outcomes map[int64]JobResult, errs map[int64]string, unknown []eot.Num) json.RawMessage {
	out := []byte{'{'}
	beginMember := func(open string) {
		if out[len(out)-1] != '{' {
			out = append(out, ',')
		}
		out = append(out, open...)
	}
	if len(outcomes) > 0 {
		beginMember(`"jobs":{`)
		for _, id := range slices.Sorted(maps.Keys(outcomes)) {
			beginMember("")
			out = appendID(out, id)
			out = outcomes[id].appendTo(out)
		}
		out = append(out, '}')
	}
	if len(errs)+len(unknown) > 0 {
		beginMember(`"errors":{`)
		for _, id := range slices.Sorted(maps.Keys(errs)) {
			beginMember("")
			out = eot.AppendString(appendID(out, id), errs[id])
		}
		for _, n := range unknown {
			beginMember("")
			out = append(eot.AppendString(out, n.String()), ':')
			out = eot.AppendString(out, unknownJobError(n))
		}
		out = append(out, '}')
	}
	return append(out, '}')
}

// unknownJobError returns why no row has this id.
func unknownJobError(n eot.Num) string {
	if n < 0 {
		return fmt.Sprintf("job %s cannot be run: ids begin at 0", n)
	}
	return fmt.Sprintf("job %s not found", n)
}

func appendID(out []byte, id int64) []byte {
	out = append(out, '"')
	out = strconv.AppendInt(out, id, 10)
	return append(out, '"', ':')
}

func (o JobResult) appendTo(out []byte) []byte {
	out = append(out, `{"result":`...)
	out = eot.AppendString(out, o.Result)
	out = append(out, `,"code":`...)
	if o.Code != nil {
		out = strconv.AppendInt(out, int64(*o.Code), 10)
	} else {
		out = append(out, "null"...)
	}
	out = append(out, `,"signal":`...)
	if o.Signal != nil {
		out = eot.AppendString(out, *o.Signal)
	} else {
		out = append(out, "null"...)
	}
	out = append(out, `,"stdout":`...)
	out = eot.AppendString(out, o.Stdout)
	out = append(out, `,"stderr":`...)
	out = eot.AppendString(out, o.Stderr)
	return append(out, '}')
}
