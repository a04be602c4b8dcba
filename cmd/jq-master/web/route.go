package web

import (
	"net/http"

	"gloom/cmd/jq-master/job"
)

// routes are all paths that tell of jobs, with what their methods do.
var routes = map[string]map[string]operation{
	"/job":              {http.MethodPost: {mayPush, postJob}},
	"/jobs":             {http.MethodPost: {mayPush, postJobs}},
	"/job/{id}":         {http.MethodGet: {mayPush, getJob}, http.MethodDelete: {mayPush, deleteJob}},
	"/job/{id}/polling": {http.MethodGet: {mayPush, pollJob}},

	"/worker":           {http.MethodPost: {mayWork, postWorker}, http.MethodDelete: {mayWork, deleteWorker}},
	"/worker/heartbeat": {http.MethodPost: {mayWork, heartbeat}},
	"/worker/jobs":      {http.MethodPost: {mayWork, pull}},
	"/done":             {http.MethodPost: {mayWork, postDone}},

	"/v1/jobs":        {http.MethodGet: {mayAdmin, getJobs}},
	"/v1/jobs/query":  {http.MethodPost: {mayAdmin, queryJobs}},
	"/v1/jobs/retry":  {http.MethodPost: {mayAdmin, bulk("retry")}},
	"/v1/jobs/cancel": {http.MethodPost: {mayAdmin, bulk("cancel")}},
	"/v1/jobs/{id}":   {http.MethodGet: {mayAdmin, getDetail}},
	"/v1/jobs/{id}/retry": {http.MethodPost: {mayAdmin, onJob(func(x *exchange, id job.ID) error {
		return x.Master.Retry(x.r.Context(), id)
	})}},
	"/v1/jobs/{id}/cancel": {http.MethodPost: {mayAdmin, onJob(func(x *exchange, id job.ID) error {
		return x.Master.CancelAny(x.r.Context(), id)
	})}},
	"/v1/stats":            {http.MethodGet: {mayAdmin, getStats}},
	"/v1/workers":          {http.MethodGet: {mayAdmin, getWorkers}},
	"/v1/workers/{id}":     {http.MethodDelete: {mayAdmin, dropWorker}},
	"/v1/constraints":      {http.MethodGet: {mayAdmin, getConstraints}},
	"/v1/constraints/test": {http.MethodPost: {mayAdmin, testConstraint}},
	"/v1/constraints/{id}": {http.MethodGet: {mayAdmin, getConstraint}, http.MethodPut: {mayAdmin, putConstraint}, http.MethodDelete: {mayAdmin, deleteConstraint}},

	"/healthz":      plain(healthz),
	"/readyz":       {http.MethodGet: {0, readyz}},
	"/openapi.yaml": plain(openapi),
}
