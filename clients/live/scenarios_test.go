package live

// scenarios are what every client must pass.
var scenarios = []struct {
	name string
	run  func(*world)
}{
	{"bodies pass byte for byte to the worker and back", bodies},
	{"many jobs are outstanding at once", manyJobs},
	{"handlers fail in four ways", failures},
	{"a waiting job is cancelled", cancelWaiting},
	{"a running job is cancelled", cancelRunning},
	{"a run takes too long", timeouts},
	{"a job expires", expires},
	{"progress arrives", progresses},
	{"options reach the broker", options},
	{"groups and headers reach the worker", headers},
	{"a worker serves patterns", patterns},
	{"an id is held", heldID},
	{"a full broker refuses", overload},
	{"what is too large is refused here", tooLarge},
	{"tokens and TLS", guarded},
	{"unix sockets", unixSockets},
	{"a cut is told, and the next job finds a way", cutSubmitter},
	{"a cut is invisible to kept jobs", cutKept},
	{"a submitter is cut at every byte", cutEveryByteOfSubmitter},
	{"a worker is cut at every byte", cutEveryByteOfWorker},
	{"another connection takes a kept job over", takenOver},
	{"a broker is restarted", restarted},
	{"a kept job meets a broker that forgot it", forgotten},
	{"a second broker takes over", secondBroker},
	{"a broker drains", draining},
	{"a worker joins two brokers", twoBrokers},
	{"a worker that dies hands its job on", workerDies},
	{"a worker stops", workerStops},
	{"a submitter drains and closes", drainAndClose},
	{"outcomes on their way reach who leaves", leaves},
	{"a job that may be retried has a backoff", backoffs},
	{"a broker falls silent", silentBroker},
	{"a broker sends nonsense to a submitter", nonsenseToSubmitter},
	{"a broker sends nonsense to a worker", nonsenseToWorker},
}
