package live

// scenarios holds the scenarios that every client must pass.
var scenarios = []struct {
	name string
	run  func(*world)
}{
	{"bodies pass byte for byte to the worker and back", bodies},
	{"many jobs are outstanding at once", manyJobs},
	{"handlers fail in four ways", handlersFail},
	{"a waiting job is cancelled", cancelWaiting},
	{"a running job is cancelled", cancelRunning},
	{"a run takes too long", runTakesTooLong},
	{"a job expires", jobExpires},
	{"progress arrives", progressArrives},
	{"options reach the broker", optionsReachBroker},
	{"groups and headers reach the worker", headersReachWorker},
	{"a worker serves patterns", workerServesPatterns},
	{"an id is held", idIsHeld},
	{"a full broker refuses", fullBrokerRefuses},
	{"what is too large is refused here", tooLargeIsRefused},
	{"tokens and TLS", tokensAndTLS},
	{"unix sockets", unixSockets},
	{"a cut is told, and the next job finds a way", cutSubmitter},
	{"a cut is invisible to kept jobs", cutKept},
	{"a submitter is cut at every byte", cutSubmitterAtEveryByte},
	{"a worker is cut at every byte", cutWorkerAtEveryByte},
	{"another connection takes a kept job over", keptJobIsTakenOver},
	{"a broker is restarted", brokerRestarts},
	{"a kept job meets a broker that forgot it", brokerForgotKeptJob},
	{"a second broker takes over", secondBroker},
	{"a broker drains", brokerDrains},
	{"a worker joins two brokers", twoBrokers},
	{"a worker that dies hands its job on", workerDies},
	{"a worker stops", workerStops},
	{"a submitter drains and closes", drainAndClose},
	{"outcomes on their way reach who leaves", leaves},
	{"a job that may be retried has a backoff", backoffs},
	{"a broker falls silent", silentBroker},
	{"a broker sends nonsense to a submitter", nonsenseToSubmitter},
	{"a broker sends nonsense to a worker", nonsenseToWorker},
	{"a refused answer, and a refused failure", answerRefused},
}
