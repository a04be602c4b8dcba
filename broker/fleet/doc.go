// Package fleet lets several brokers lend each other jobs.
//
// A job lives at its home, the broker that accepted it. A job for which no worker is idle at home
// may be lent to a broker that has an idle worker. To the home that broker is a worker
// (broker.AddBorrower); to the borrower the home is a submitter whose jobs never wait
// (broker.AddLender). So the core takes care of retries, cancelling, timeouts and ledgers.
//
//	borrower                                home
//	    wants   ── idle workers for t ──►           to all, on change and every 2 s
//	            ◄── offer: jobs of t ───            to brokers that want t
//	    grant   ── n places ────────────►           the best offers
//	            ◄── lend ───────────────            as many jobs as there are places
//	    result  ────────────────────────►           its place may be filled again
//
// Machine is a state machine like the core, driven with it under one lock: messages
// and the time go in, messages and commands for the core come out. It has no
// sockets, clock, goroutines or logs. Package driver connects it with NATS.
package fleet
