package serverless

import (
	"context"
	"net/http"
	"time"

	"github.com/goccy/go-json"

	"gloom/bench/door"
	"gloom/bench/proc"
	"gloom/bench/throwaway"
)

// daemon is a serverlessd with a directory of its own.
type daemon struct {
	server *throwaway.Server
	client *door.Client
}

func startDaemon(ctx context.Context, o Options) (*daemon, error) {
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
	d.client = door.NewClient(d.server.Addr(), answerTimeout)
	d.server.Args, d.server.Ready = func() []string { return args }, d.server.Answers("/readyz")
	return d, d.server.Start()
}

// answerTimeout bounds the time for an answer.
const answerTimeout = time.Minute

// call sends a request and reads the JSON of its answer.
func (d *daemon) call(ctx context.Context, method, path string, body []byte, answer any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := d.client.Do(door.Head{Method: method, Path: path}, body, http.StatusOK)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// counts holds the numbers of jobs of a type.
type counts struct{ Added, OK int }

func (d *daemon) counts(ctx context.Context, typ string) (counts, error) {
	var s struct{ Types map[string]counts }
	err := d.call(ctx, "GET", "/bench/state", nil, &s)
	return s.Types[typ], err
}

// awaitDone waits until that number of jobs of a type is done.
func (d *daemon) awaitDone(ctx context.Context, typ string, jobs int) error {
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
