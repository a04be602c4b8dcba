package control

import (
	"encoding/json"
	"strconv"

	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/peer"
)

// statusJSON encodes the targets in order, which a Go map would lose.
func statusJSON(s Status) (json.RawMessage, error) {
	memory, err := peer.Marshal(peer.MemoryUsage())
	if err != nil {
		return nil, err
	}
	out := []byte(`{"targets":{`)
	for i, t := range s.Targets {
		if i > 0 {
			out = append(out, ',')
		}
		out = eot.AppendString(out, t.Name)
		out = append(out, `:{"paused":`...)
		out = strconv.AppendBool(out, t.Paused)
		out = append(out, `,"concurrency":`...)
		out = strconv.AppendInt(out, int64(t.Concurrency), 10)
		out = append(out, `,"length":`...)
		out = strconv.AppendInt(out, int64(t.Length), 10)
		out = append(out, '}')
	}
	out = append(out, `},"jobPromisesCount":`...)
	out = strconv.AppendInt(out, int64(s.Waiting), 10)
	out = append(out, `,"memoryUsage":`...)
	out = append(out, memory...)
	return append(out, '}'), nil
}
