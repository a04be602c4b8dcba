package serverless

import (
	"context"
	"fmt"
	"time"

	"gloom/bench/proc"
	"gloom/bench/throwaway"

	"github.com/goccy/go-json"
	"github.com/valyala/fasthttp"
)

// daemon is a serverlessd with a directory of its own.
type daemon struct {
	server *throwaway.Server
	client fasthttp.HostClient // a cheap client, because it shares the processors with the daemon
}

func start(ctx context.Context, o Options) (*daemon, error) {
	program, err := proc.FindProgram(ctx, "serverlessd", o.Program, "--serverlessd")
	if err != nil {
		return nil, err
	}
	d := &daemon{}
	if d.server, err = throwaway.New(program); err != nil {
		return nil, err
	}
	args := []string{"--addr", d.server.Addr(), "--dir", d.server.Dir + "/data", "--langs", "http,node,php,python,sh,gloom"}
	if o.Store != "" {
		args = append(args, "--store", o.Store)
	}
	d.client = fasthttp.HostClient{Addr: d.server.Addr(), MaxConns: o.Clients + 1, ReadTimeout: startTimeout}
	d.server.Args, d.server.Ready = func() []string { return args }, d.server.Answers("/readyz")
	return d, d.server.Start()
}

// startTimeout bounds the time for an answer.
const startTimeout = time.Minute

// call sends a request and reads the JSON of its answer.
func (d *daemon) call(ctx context.Context, method, path string, body []byte, answer any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(method)
	req.SetRequestURI("http://" + d.client.Addr + path)
	req.SetBodyRaw(body)
	if err := d.client.Do(req, resp); err != nil {
		return err
	}
	if resp.StatusCode() != fasthttp.StatusOK {
		return fmt.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode(), resp.Body())
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(resp.Body(), answer)
}

// counts holds the numbers of jobs of a type.
type counts struct{ Added, OK int }

func (d *daemon) counts(ctx context.Context, typ string) (counts, error) {
	var s struct{ Types map[string]counts }
	err := d.call(ctx, "GET", "/bench/state", nil, &s)
	return s.Types[typ], err
}

// await waits until that number of jobs of a type is done.
func (d *daemon) await(ctx context.Context, typ string, jobs int) error {
	for {
		c, err := d.counts(ctx, typ)
		if err != nil || c.OK >= jobs {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
