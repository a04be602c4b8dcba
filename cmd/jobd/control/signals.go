package control

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"syscall"

	"gloom/cmd/internal/launch"
	"gloom/cmd/jobd/eot"
	"gloom/cmd/jobd/peer"
)

func (s server) sendSignal(ctx context.Context, _ *peer.Conn, data json.RawMessage) (any, error) {
	jobs := readSignals(data)
	signals := make(map[int64]syscall.Signal)
	for _, j := range jobs {
		id, err := strconv.ParseInt(j.Name, 10, 64)
		if signal, ok := signalOf(j.Value); ok && err == nil {
			signals[id] = signal
		}
	}
	var delivered map[int64]bool
	if len(signals) > 0 {
		delivered = s.engine.SendSignal(ctx, signals)
	}
	out := []byte{'{'}
	for i, j := range jobs {
		if i > 0 {
			out = append(out, ',')
		}
		id, err := strconv.ParseInt(j.Name, 10, 64)
		out = append(eot.AppendString(out, j.Name), ':')
		_, valid := signalOf(j.Value)
		out = strconv.AppendBool(out, err == nil && valid && delivered[id])
	}
	return json.RawMessage(append(out, '}')), nil
}

// readSignals reads the jobs and their signals. PHP encodes a map whose keys count from 0 as a list,
// so the indexes of a list count as ids.
func readSignals(data json.RawMessage) []eot.Member {
	raw := eot.Object(eot.Members(data)).Get("jobs")
	if !eot.IsArray(raw) {
		return eot.Members(raw)
	}
	var jobs []eot.Member
	for i, e := range eot.Elements(raw) {
		jobs = append(jobs, eot.Member{Name: strconv.Itoa(i), Value: e})
	}
	return jobs
}

// signalOf reads a signal, given by its number or its full name. Signal 0 only tests whether the
// job runs.
func signalOf(raw json.RawMessage) (syscall.Signal, bool) {
	if n, ok := eot.Integer(raw); ok {
		signal := syscall.Signal(n)
		return signal, n == 0 || eot.Num(signal) == n && launch.ValidSignal(signal)
	}
	return launch.ParseSignal(strings.ToUpper(eot.String(raw)))
}
