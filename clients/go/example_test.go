package gloom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// runBroker starts a broker in this process, on free ports. Programs connect to
// a gloomd instead: gloom.Addrs("127.0.0.1:9998") for submitters, 9999 for
// workers.
func runBroker() (submitAddr, workerAddr string, stop func()) {
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		log.Fatal(err)
	}
	return srv.SubmitAddr().String(), srv.WorkerAddr().String(), func() { srv.Close() }
}

func Example() {
	submitAddr, workerAddr, stop := runBroker()
	defer stop()
	ctx := context.Background()

	w := &gloom.Worker{
		Type: "upper",
		Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			var text string
			if err := json.Unmarshal(job.Body, &text); err != nil {
				return nil, gloom.Fatal(err) // no retry would help
			}
			return strings.ToUpper(text), nil
		},
		Options: []gloom.Option{gloom.Addrs(workerAddr)},
	}
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer w.Stop(ctx)

	jobs, err := gloom.Dial(ctx, gloom.Addrs(submitAddr))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()

	result, err := jobs.Do(ctx, gloom.Job{Type: "upper", Body: json.RawMessage(`"hello"`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(result.Body))
	// Output: "HELLO"
}

// serveSquares runs a worker that squares numbers.
func serveSquares(ctx context.Context, addr string) (stop func()) {
	w := &gloom.Worker{Type: "square", Concurrency: 4, Options: []gloom.Option{gloom.Addrs(addr)},
		Handler: func(_ context.Context, job *gloom.Job) (any, error) {
			var n int
			err := json.Unmarshal(job.Body, &n)
			return n * n, err
		}}
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	return func() { w.Stop(ctx) }
}

// Many jobs at once: submit them all, then collect the results. The window bounds the
// number of outstanding jobs.
func ExampleSubmitter_Submit() {
	submitAddr, workerAddr, stop := runBroker()
	defer stop()
	ctx := context.Background()
	defer serveSquares(ctx, workerAddr)()
	jobs, err := gloom.Dial(ctx, gloom.Addrs(submitAddr), gloom.Window(100))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()

	var pending []*gloom.Pending
	for n := range 5 {
		body, err := gloom.JSON(n)
		if err != nil {
			log.Fatal(err)
		}
		p, err := jobs.Submit(ctx, gloom.Job{Type: "square", Body: body})
		if err != nil {
			log.Fatal(err)
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		result, err := p.Result(ctx)
		if err != nil {
			log.Fatal(err)
		}
		var square int
		if err := result.Decode(&square); err != nil {
			log.Fatal(err)
		}
		fmt.Println(square)
	}
	// Output:
	// 0
	// 1
	// 4
	// 9
	// 16
}

func ExampleSubmitter_SubmitFunc() {
	submitAddr, workerAddr, stop := runBroker()
	defer stop()
	ctx := context.Background()
	defer serveSquares(ctx, workerAddr)()
	jobs, err := gloom.Dial(ctx, gloom.Addrs(submitAddr))
	if err != nil {
		log.Fatal(err)
	}

	var mu sync.Mutex
	sum := 0
	for n := range 10 {
		job := gloom.Job{Type: "square", Body: json.RawMessage(fmt.Sprint(n))}
		err := jobs.SubmitFunc(ctx, job, func(r gloom.Result, err error) {
			var square int
			if err == nil {
				err = r.Decode(&square)
			}
			if err != nil {
				log.Print(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			sum += square
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := jobs.Drain(ctx); err != nil { // waits for all of them
		log.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	fmt.Println(sum)
	// Output: 285
}

// A job can end without a result; this example shows what each error means.
func ExampleSubmitter_Do_errors() {
	submitAddr, _, stop := runBroker()
	defer stop()
	ctx := context.Background()
	jobs, err := gloom.Dial(ctx, gloom.Addrs(submitAddr))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()

	_, err = jobs.Do(ctx, gloom.Job{Type: "nobody-serves-this", Expires: 10 * time.Millisecond})
	var (
		refused *gloom.RefusedError
		lost    *gloom.LostError
	)
	switch {
	case errors.Is(err, gloom.ErrExpired):
		fmt.Println("nobody had time")
	case errors.Is(err, gloom.ErrJobFailed):
		fmt.Println("every run failed")
	case errors.As(err, &refused):
		fmt.Println("not taken:", refused.Reason)
	case errors.As(err, &lost) && !lost.Sent:
		fmt.Println("never left: submit it again")
	case errors.As(err, &lost):
		fmt.Println("may have run: is it safe to run twice?")
	}
	// Output: nobody had time
}

// A long job reports how far it is.
func ExampleJob_Progress() {
	submitAddr, workerAddr, stop := runBroker()
	defer stop()
	ctx := context.Background()
	w := &gloom.Worker{Type: "count", Options: []gloom.Option{gloom.Addrs(workerAddr)},
		Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			for n := 1; n <= 3; n++ {
				if err := job.Progress(n); err != nil {
					return nil, err // no client waits any more
				}
			}
			return "done", nil
		}}
	if err := w.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer w.Stop(ctx)
	jobs, err := gloom.Dial(ctx, gloom.Addrs(submitAddr))
	if err != nil {
		log.Fatal(err)
	}
	defer jobs.Close()

	result, err := jobs.Do(ctx, gloom.Job{
		Type:       "count",
		OnProgress: func(body json.RawMessage) { fmt.Println("step", string(body)) },
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(result.Body))
	// Output:
	// step 1
	// step 2
	// step 3
	// "done"
}

// A worker that serves until its context ends, and then finishes its running jobs.
func ExampleWorker_Run() {
	_, workerAddr, stop := runBroker()
	defer stop()
	// In a program: signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())

	w := &gloom.Worker{
		Type:        "mail",
		Concurrency: 8,
		Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			return nil, gloom.RetryAfter(errors.New("mail server is busy"), time.Minute)
		},
		Options: []gloom.Option{
			gloom.Addrs(workerAddr),
			gloom.Notify(func(n gloom.Notice) {
				if n.Event == gloom.EventJoined {
					cancel() // stands in for the signal
				}
			}),
		},
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped")
	// Output: stopped
}
