package serverless

import (
	"context"
	"fmt"
	"os"
	"strconv"
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
	port, err := throwaway.FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gloom-bench-")
	if err != nil {
		return nil, err
	}
	addr := "127.0.0.1:" + strconv.Itoa(port)
	args := []string{"--addr", addr, "--dir", dir + "/data", "--langs", "http,node,php,python,sh,gloom"}
	if o.Store != "" {
		args = append(args, "--store", o.Store)
	}
	d := &daemon{client: fasthttp.HostClient{Addr: addr, MaxConns: o.Clients + 1, ReadTimeout: startTimeout}}
	d.server = &throwaway.Server{Program: program, Dir: dir, Args: func() []string { return args }, Ready: func(ctx context.Context) error {
		return d.call(ctx, "GET", "/readyz", nil, nil)
	}}
	if err := d.server.Launch(); err != nil {
		d.server.Close()
		return nil, err
	}
	return d, nil
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
