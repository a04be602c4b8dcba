// Package gloom is the Go client of the Gloom job broker.
//
// A [Submitter] submits jobs over one connection that any number of goroutines share:
// [Submitter.Do] waits for the answer, [Submitter.Submit] returns a [Pending] to wait on
// later, and [Submitter.SubmitFunc] calls a function. A [Worker] serves jobs of one or
// several types with a pool of handlers.
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
// A submitter with several addresses uses one broker, and moves to the next when that broker
// is lost or drains. A worker joins all of them. Both reconnect by themselves, with
// exponential backoff and full jitter.
//
// Jobs live in the broker's memory and belong to their submitter's connection. When it is
// lost, every job pending on it ends with a [*LostError], which says whether the broker had
// accepted the job. The caller decides what to do then: a job that was sent may have run. A job
// with Keep outlives its connection: the submitter reconnects to the same broker and resumes it.
//
// # Errors
//
// A request that the broker did not accept fails with a [*RefusedError]. A job that it accepted,
// and that ended without an answer, fails with a [*JobError]. Both match the [Code] constants:
//
//	if errors.Is(err, gloom.ErrIDExists) { … }
//
// # What the package does not do
//
// It does not store jobs. It does not submit a job again that may have run, unless AtLeastOnce
// asks for it. It does not spread one submitter's jobs over several brokers, and discovers
// no broker except the local one. It does not interpret bodies: JSON passes through unchanged.
//
// # How it works
//
// A job, and the broker's frames about it, take this path:
//
//	Submit           checks the job, makes its frame, waits for a place in the window
//	Submitter.startJob  waits for a connection that has room for the frame
//	session.sendJob  adds the job to the connection's table, its request to those that
//	                 wait for a reply, and its frame to those to be sent
//	conn.writeLoop   writes all frames to be sent with one call
//	…
//	conn.handle      cuts a frame from the incoming bytes
//	conn.receive     decides what each one is: the reply to the first waiting request,
//	                 or, by its id, the end of a job
//	session.onReply  acts on a reply: the job is accepted, refused, or requested in another way
//	Pending.notify   frees the place in the window, and wakes those who wait
//
// A worker's connection is the same, with runs in place of jobs: socket.onJob gives a run to a
// handler or to Take, socket.answer sends how it ended, and socket.onReply acts on the reply.
// One lock guards the state of a connection; a submitter's connections share it. Callbacks are
// called without it.
package gloom
