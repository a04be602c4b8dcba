package jq

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
)

//go:embed bullmq.js
var bullmqText string

// bullmqRound has BullMQ run the same jobs, with queue and worker in one process.
func bullmqRound(ctx context.Context, s *servers, o Options, r *Round) error {
	cmd := exec.CommandContext(ctx, "node", "-e", bullmqText, strconv.Itoa(s.redis.Port()), strconv.Itoa(o.Jobs),
		strconv.Itoa(o.Pushers), strconv.Itoa(o.Workers*o.Slots), strconv.Itoa(o.Body))
	cmd.Dir = o.NodeModules
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("node: %w: %s", err, errs.String())
	}
	r.OwnCPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return json.Unmarshal(out.Bytes(), &struct {
		Seconds, P50, P99 *float64
	}{&r.Seconds, &r.P50, &r.P99})
}
