package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/goccy/go-json"
	"github.com/spf13/cobra"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/wire"
)

func newPing(t *tool) *cobra.Command {
	p := &pingCommand{tool: t}
	cmd := &cobra.Command{
		Use:   "ping",
		Short: "Check that the broker answers at all its addresses",
		Long: `Send a ping to each address of the broker and print how long the answer took,
or why there is none.
The exit status is 3 if an address does not answer. --http asks only the
address for operators, which needs no token for that.`,
		Example: `  gloom ping
  gloom ping --wait 30s && gloom submit report '"weekly"'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDurations(cmd.Flags(), "wait"); err != nil {
				return err
			}
			return p.run()
		},
	}
	f := cmd.Flags()
	f.DurationVar(&p.wait, "wait", 0, "try again for this long, until all answer")
	f.BoolVar(&p.http, "http", false, "ask at the address for operators only")
	t.jsonFlag(cmd, "print JSON, one object per line")
	return cmd
}

type pingCommand struct {
	*tool
	wait time.Duration
	http bool
}

// pingPause is the time between attempts.
const pingPause = 50 * time.Millisecond

// pingResult is the result for one address, as --json prints it.
type pingResult struct {
	Port    string  `json:"port"`
	Address string  `json:"address"`
	OK      bool    `json:"ok"`
	Millis  float64 `json:"ms,omitempty"`
	Error   string  `json:"error,omitempty"`
}

func (p *pingCommand) run() error {
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	deadline := time.Now().Add(p.wait)
	type target struct {
		port, addr, flag string
	}
	var targets []target
	if !p.http {
		for _, a := range p.addresses(p.conn.submitAddrs, wire.SubmitPort, gloom.DefaultSubmitAddr) {
			targets = append(targets, target{"submit", a, "submit-addr"})
		}
		for _, a := range p.addresses(p.conn.workerAddrs, wire.WorkerPort, gloom.DefaultWorkerAddr) {
			targets = append(targets, target{"worker", a, "worker-addr"})
		}
	}
	if p.http || p.conn.httpAddr != "" {
		targets = append(targets, target{"http", p.conn.httpAddr, "http-addr"})
	}
	var failed error
	for _, to := range targets {
		elapsed, err := p.pingOnce(ctx, to.port, to.addr, to.flag)
		for err != nil && isTemporary(err) && time.Now().Before(deadline) && ctx.Err() == nil {
			select {
			case <-time.After(pingPause):
			case <-ctx.Done():
			}
			elapsed, err = p.pingOnce(ctx, to.port, to.addr, to.flag)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.report(to.port, to.addr, to.flag, elapsed, err); err != nil {
			return err
		}
		if failed == nil {
			failed = err
		}
	}
	return failed
}

// isTemporary reports whether an error may be gone at the next attempt.
func isTemporary(err error) bool {
	var f *cli.Fault
	return !errors.As(err, &f) || f.Code != cli.ExitUsage
}

// addresses returns the addresses that were given or, if none were given, the address that a client
// would use.
func (p *pingCommand) addresses(addrs []string, port wire.Port, standard string) []string {
	if len(addrs) > 0 {
		return addrs
	}
	if conf, _ := p.conn.tlsConfig(); conf != nil {
		return []string{standard}
	}
	if c, err := net.Dial("unix", port.Socket()); err == nil {
		c.Close()
		return []string{"unix:" + port.Socket()}
	}
	return []string{standard}
}

// nameAddr returns the name of an address in an error. If no address was given, the name lists all
// addresses that a client would try.
func (p *pingCommand) nameAddr(addr, flag string) string {
	isGiven := map[string]bool{"submit-addr": len(p.conn.submitAddrs) > 0, "worker-addr": len(p.conn.workerAddrs) > 0, "http-addr": true}
	if isGiven[flag] {
		return addr
	}
	return defaultAddr(flag)
}

// origin marks an address that was not given beside one that was: it may be another broker's.
func (p *pingCommand) origin(flag string) string {
	given := map[string]bool{"submit-addr": len(p.conn.submitAddrs) > 0, "worker-addr": len(p.conn.workerAddrs) > 0, "http-addr": p.conn.httpAddr != defaultHTTPAddr}
	if p.http || given[flag] || !given["submit-addr"] && !given["worker-addr"] && !given["http-addr"] {
		return ""
	}
	return " (the default)"
}

func (p *pingCommand) pingOnce(ctx context.Context, port, addr, flag string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if port == "http" {
		o := p.conn.operator()
		start := time.Now()
		err := o.call(ctx, http.MethodGet, "/healthz", nil, nil)
		return time.Since(start), err
	}
	// Both ports know hello and ping, so a submitter can ping either of them.
	opts, err := p.conn.options([]string{addr}, clientName("ping"))
	if err != nil {
		return 0, err
	}
	jobs, err := gloom.Dial(ctx, opts...)
	if err != nil {
		return 0, unreachableFault([]string{p.nameAddr(addr, flag)}, flag, err)
	}
	defer jobs.Close()
	start := time.Now()
	if err = jobs.Ping(ctx); err != nil {
		return 0, err
	}
	return time.Since(start), checkPort(ctx, jobs, port, addr)
}

// checkPort refuses an address that is the other port's. Only the port for submitters knows cancel;
// the id is random, so that there is no such job.
func checkPort(ctx context.Context, jobs *gloom.Submitter, port, addr string) error {
	var refused *gloom.RefusedError
	errors.As(jobs.Cancel(ctx, rand.Text()), &refused)
	other := ""
	switch {
	case refused == nil:
	case port == "submit" && refused.Code == gloom.ErrInvalidAction:
		other = "workers"
	case port == "worker" && refused.Code == gloom.ErrUnknownID:
		other = "submitters"
	}
	if other == "" { // the address is right, or the token does not allow cancel
		return nil
	}
	return cli.Usagef("--%s-addr %s is the broker's address for %s", port, addr, other).
		SetHint("--submit-addr and --worker-addr may be swapped; the defaults are %s and %s", gloom.DefaultSubmitAddr, gloom.DefaultWorkerAddr)
}

func (p *pingCommand) report(port, addr, flag string, elapsed time.Duration, err error) error {
	a := pingResult{Port: port, Address: addr, OK: err == nil, Millis: float64(elapsed.Microseconds()) / 1000}
	if err != nil {
		a.Millis, a.Error = 0, plainText(classify(err))
	}
	switch {
	case p.json:
		data, err := json.Marshal(a)
		if err != nil {
			return err
		}
		return p.printJSON(data)
	case err != nil:
		reason := a.Error
		var cause unreachableCause
		if errors.As(err, &cause) {
			reason = string(cause)
		}
		_, werr := fmt.Fprintf(p.stdout, "%-6s  %s%s  fails: %s\n", port, p.nameAddr(addr, flag), p.origin(flag), reason)
		return outputError(werr)
	}
	decimals := 1
	if a.Millis < 1 {
		decimals = 3
	}
	_, werr := fmt.Fprintf(p.stdout, "%-6s  %s%s  answers in %.*f ms\n", port, addr, p.origin(flag), decimals, a.Millis)
	return outputError(werr)
}
