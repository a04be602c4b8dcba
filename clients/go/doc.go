// Package gloom is the Go client of the Gloom job broker.
//
// A [Submitter] hands jobs in over one connection that any number of goroutines
// share: [Submitter.Do] waits for the answer, [Submitter.Submit] returns a
// [Pending] to wait on later, [Submitter.SubmitFunc] calls a function back. A
// [Worker] serves jobs of one type, or several, with a pool of handlers.
//
//	jobs, err := gloom.Dial(ctx, gloom.Addrs("127.0.0.1:9998"))
//	result, err := jobs.Do(ctx, gloom.Job{Type: "echo", Body: json.RawMessage(`"hi"`)})
//
//	w := &gloom.Worker{Type: "echo", Concurrency: 4, Handler: handle,
//		Options: []gloom.Option{gloom.Addrs("127.0.0.1:9999")}}
//	err = w.Run(ctx)
//
// # Several brokers, lost connections
//
// With several addresses a submitter uses one broker and turns to the next when
// that one is lost or drains; a worker joins all of them. Both reconnect by
// themselves, with exponential backoff and full jitter.
//
// Jobs live in the broker's memory and belong to their submitter's connection.
// When it is lost, every job pending on it ends at once with a [*LostError],
// which says whether the broker had taken the job. What to do then is for the
// caller to decide: a job that was sent may have run. A job with Keep outlives
// its connection: the submitter comes back to the same broker and goes on.
//
// # Errors
//
// What the broker answers comes back as a [*RefusedError], when it did not take
// a request, or as a [*JobError], when a job that it had taken ended without an
// answer. Both match the [Code] constants:
//
//	if errors.Is(err, gloom.ErrIDExists) { … }
//
// # What the package does not do
//
// It does not store jobs, submit a job that may have run a second time unless
// AtLeastOnce asks for it, spread one submitter's jobs over several brokers, or
// look brokers up: addresses are given, but for the local one.
// It does not interpret bodies: JSON goes in and comes out as it is.
//
// # How it works
//
// The way of a job, and of what the broker says about it:
//
//	Submit           checks the job, makes its frame, waits for a place in the window
//	Submitter.send   waits for a connection that has room for the frame
//	session.bring    puts the job on the connection's table, its request in line
//	                 behind those that wait for a reply, its frame behind those to be sent
//	conn.writeLoop   writes all frames that are there with one call
//	…
//	conn.readLoop    cuts what comes into frames
//	conn.receive     tells whose each one is: the reply to the first request in line,
//	                 or, by its id, the end of a job
//	session.replied  acts on a reply: the job is taken, refused, or asked for otherwise
//	Pending.tell     lets go of the place in the window, and tells those who wait
//
// A worker's connection is the same, with runs in place of jobs: socket.onJob hands
// a run to a handler or to Take, socket.answer sends how it ended, and
// socket.replied acts on the reply. All that a connection knows is guarded by one
// lock, which the connections of a submitter share; callbacks are called without it.
package gloom
