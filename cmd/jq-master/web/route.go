package web

import (
	"net/http"

	"gloom/cmd/jq-master/master"
)

// toPush, toWork and toAdmin return operations for clients that may push, work or administer. query
// lists the query parameters that the operation accepts. Others are refused, except in requests of
// workers, where they are ignored.
func toPush(serve handler, query ...string) operation  { return operation{mayPush, serve, query} }
func toWork(serve handler) operation                   { return operation{mayWork, serve, nil} }
func toAdmin(serve handler, query ...string) operation { return operation{mayAdmin, serve, query} }

// routes holds the operations of each path, by method.
var routes = map[string]map[string]operation{
	"/job":              {http.MethodPost: toPush(postJob)},
	"/jobs":             {http.MethodPost: toPush(postJobs)},
	"/job/{id}":         {http.MethodGet: toPush(getJob, "peek"), http.MethodDelete: toPush(deleteJob, "force")},
	"/job/{id}/polling": {http.MethodGet: toPush(pollJob, "timeout", "peek")},

	"/worker":           {http.MethodPost: toWork(postWorker), http.MethodDelete: toWork(deleteWorker)},
	"/worker/heartbeat": {http.MethodPost: toWork(heartbeat)},
	"/worker/jobs":      {http.MethodPost: toWork(pull)},
	"/done":             {http.MethodPost: toWork(postDone)},

	"/v1/jobs":               {http.MethodGet: toAdmin(getJobs, listFields...)},
	"/v1/jobs/query":         {http.MethodPost: toAdmin(queryJobs)},
	"/v1/jobs/retry":         {http.MethodPost: toAdmin(bulk(constantAction(master.Retrying)))},
	"/v1/jobs/cancel":        {http.MethodPost: toAdmin(bulk(constantAction(master.Cancelling)))},
	"/v1/jobs/priority":      {http.MethodPost: toAdmin(bulk(prioritize, "priority"))},
	"/v1/jobs/{id}":          {http.MethodGet: toAdmin(getDetail, "bodies")},
	"/v1/jobs/{id}/retry":    {http.MethodPost: toAdmin(onJob(constantAction(master.Retrying)))},
	"/v1/jobs/{id}/cancel":   {http.MethodPost: toAdmin(onJob(constantAction(master.Cancelling)))},
	"/v1/jobs/{id}/priority": {http.MethodPost: toAdmin(onJob(prioritize, "priority"))},
	"/v1/status":             {http.MethodGet: toAdmin(getStatus)},
	"/v1/stats":              {http.MethodGet: toAdmin(getStats, "names", "shared")},
	"/v1/findings":           {http.MethodGet: toAdmin(getFindings, "subject", "cause", "limit")},
	"/v1/moments":            {http.MethodGet: toAdmin(getMoments)},
	"/v1/workers":            {http.MethodGet: toAdmin(getWorkers, "limit", "cursor")},
	"/v1/workers/{id}":       {http.MethodDelete: toAdmin(dropWorker)},
	"/v1/constraints":        {http.MethodGet: toAdmin(getConstraints)},
	"/v1/constraints/{id}":   ofConstraint,
	"/v1/constraints/test": {
		http.MethodPost: toAdmin(testConstraint),
		http.MethodGet:  ofConstraint[http.MethodGet], http.MethodPut: ofConstraint[http.MethodPut], http.MethodDelete: ofConstraint[http.MethodDelete],
	},
	"/v1/schedules":        {http.MethodGet: toAdmin(getSchedules, "limit", "cursor")},
	"/v1/schedules/{name}": {http.MethodGet: toAdmin(getSchedule), http.MethodPut: toAdmin(putSchedule), http.MethodDelete: toAdmin(deleteSchedule)},

	"/healthz":      plain(healthz),
	"/readyz":       {http.MethodGet: {serve: readyz}},
	"/openapi.yaml": plain(openapi),
}

// ofConstraint holds the operations on a constraint. They also serve the path of the constraint with
// the id "test".
var ofConstraint = map[string]operation{
	http.MethodGet: toAdmin(getConstraint), http.MethodPut: toAdmin(putConstraint), http.MethodDelete: toAdmin(deleteConstraint),
}
