package web

import (
	"net/http"

	"gloom/cmd/jq-master/master"
)

// pushOperation, workOperation and adminOperation return operations for clients that may push, work
// or administer. query lists the query parameters that the operation accepts. Others are refused,
// except in requests of workers, where they are ignored.
func pushOperation(serve handler, query ...string) operation { return operation{mayPush, serve, query} }
func workOperation(serve handler) operation                  { return operation{mayWork, serve, nil} }
func adminOperation(serve handler, query ...string) operation {
	return operation{mayAdmin, serve, query}
}

// routes holds the operations of each path, by method.
var routes = map[string]map[string]operation{
	"/job":              {http.MethodPost: pushOperation(postJob)},
	"/jobs":             {http.MethodPost: pushOperation(postJobs)},
	"/job/{id}":         {http.MethodGet: pushOperation(getJob, "peek"), http.MethodDelete: pushOperation(deleteJob, "force")},
	"/job/{id}/polling": {http.MethodGet: pushOperation(pollJob, "timeout", "peek")},

	"/worker":           {http.MethodPost: workOperation(postWorker), http.MethodDelete: workOperation(deleteWorker)},
	"/worker/heartbeat": {http.MethodPost: workOperation(heartbeat)},
	"/worker/jobs":      {http.MethodPost: workOperation(pull)},
	"/done":             {http.MethodPost: workOperation(postDone)},

	"/v1/jobs":               {http.MethodGet: adminOperation(getJobs, listFields...)},
	"/v1/jobs/query":         {http.MethodPost: adminOperation(queryJobs)},
	"/v1/jobs/retry":         {http.MethodPost: adminOperation(bulkAction(constantAction(master.RetryAction)))},
	"/v1/jobs/cancel":        {http.MethodPost: adminOperation(bulkAction(constantAction(master.CancelAction)))},
	"/v1/jobs/priority":      {http.MethodPost: adminOperation(bulkAction(prioritize, "priority"))},
	"/v1/jobs/{id}":          {http.MethodGet: adminOperation(getDetail, "bodies")},
	"/v1/jobs/{id}/retry":    {http.MethodPost: adminOperation(jobAction(constantAction(master.RetryAction)))},
	"/v1/jobs/{id}/cancel":   {http.MethodPost: adminOperation(jobAction(constantAction(master.CancelAction)))},
	"/v1/jobs/{id}/priority": {http.MethodPost: adminOperation(jobAction(prioritize, "priority"))},
	"/v1/status":             {http.MethodGet: adminOperation(getStatus)},
	"/v1/stats":              {http.MethodGet: adminOperation(getStats, "names", "shared")},
	"/v1/findings":           {http.MethodGet: adminOperation(getFindings, "subject", "cause", "limit")},
	"/v1/moments":            {http.MethodGet: adminOperation(getMoments)},
	"/v1/workers":            {http.MethodGet: adminOperation(getWorkers, "limit", "cursor")},
	"/v1/workers/{id}":       {http.MethodDelete: adminOperation(dropWorker)},
	"/v1/constraints":        {http.MethodGet: adminOperation(getConstraints)},
	"/v1/constraints/{id}":   constraintOperations,
	"/v1/constraints/test": {
		http.MethodPost: adminOperation(testConstraint),
		http.MethodGet:  constraintOperations[http.MethodGet], http.MethodPut: constraintOperations[http.MethodPut], http.MethodDelete: constraintOperations[http.MethodDelete],
	},
	"/v1/schedules":        {http.MethodGet: adminOperation(getSchedules, "limit", "cursor")},
	"/v1/schedules/{name}": {http.MethodGet: adminOperation(getSchedule), http.MethodPut: adminOperation(putSchedule), http.MethodDelete: adminOperation(deleteSchedule)},

	"/healthz":      plainOperations(healthz),
	"/readyz":       {http.MethodGet: {serve: readyz}},
	"/openapi.yaml": plainOperations(openapi),
}

// constraintOperations holds the operations on a constraint. They also serve the path of the
// constraint with the id "test".
var constraintOperations = map[string]operation{
	http.MethodGet: adminOperation(getConstraint), http.MethodPut: adminOperation(putConstraint), http.MethodDelete: adminOperation(deleteConstraint),
}
