package serverless

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"gloom/bench/proc"
	"gloom/cmd/throwaway"
)

// daemon is a serverlessd on a directory of its own.
type daemon struct {
	server *throwaway.Server
	url    string
	client *http.Client
}

func start(ctx context.Context, o Options) (*daemon, error) {
	program, err := proc.Program(ctx, "serverlessd", o.Program, "--serverlessd")
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
	d := &daemon{url: "http://" + addr, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: o.Clients}}}
	d.server = &throwaway.Server{Program: program, Dir: dir, Args: func() []string { return args }, Ready: func(ctx context.Context) error {
		return d.call(ctx, "GET", "/readyz", nil, nil)
	}}
	if err := d.server.Launch(); err != nil {
		d.server.Close()
		return nil, err
	}
	return d, nil
}

// call sends a request and reads the JSON of its answer.
func (d *daemon) call(ctx context.Context, method, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return err
}

// counts are the jobs of a type.
type counts struct{ Added, OK int }

func (d *daemon) counts(ctx context.Context, typ string) (counts, error) {
	var s struct{ Types map[string]counts }
	err := d.call(ctx, "GET", "/bench/state", nil, &s)
	return s.Types[typ], err
}

// await waits until so many jobs of a type are done.
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
