package web

import (
	"net/http"
	"net/url"
	"strings"

	"gloom/broker/admin/api"
	"gloom/cmd/serverlessd/page"
)

// These are the actions that paths request.
var (
	indexAction = &action{methods: "GET", public: true, run: (*Web).hello}
	file        = &action{methods: "GET", public: true, run: (*Web).file}
	healthz     = &action{methods: "GET", public: true, run: (*Web).healthz}
	readyz      = &action{methods: "GET", public: true, run: (*Web).readyz}
	metrics     = &action{methods: "GET", public: true, run: (*Web).metrics}
	start       = &action{methods: "GET,POST", scope: Admin, mutates: true, run: (*Web).start}
	stop        = &action{methods: "GET,POST", scope: Admin, mutates: true, run: (*Web).stop}
	quit        = &action{methods: "GET,POST", scope: Admin, mutates: true, run: (*Web).quit}
	states      = &action{methods: "GET", scope: Admin, run: (*Web).state}
	asides      = &action{methods: "GET", scope: Admin, run: (*Web).listAside}
	putBack     = &action{methods: "POST", query: "file,all", scope: Admin, run: (*Web).putBack}

	status       = &action{methods: "GET", scope: Admin, run: (*Web).status}
	stats        = &action{methods: "GET", query: "types,part", scope: Admin, run: (*Web).stats}
	findings     = &action{methods: "GET", query: "subject,cause,limit", scope: Admin, run: (*Web).findings}
	lastMinutes  = &action{methods: "GET", scope: Admin, run: (*Web).lastMinutes}
	listAll      = &action{methods: "GET", query: "id,state,after,limit,last", scope: Admin, run: (*Web).listAll}
	handlers     = &action{methods: "GET", query: "part,limit,cursor", scope: Admin, run: (*Web).handlers}
	allSchedules = &action{methods: "GET", query: "limit,cursor", scope: Admin, run: (*Web).schedules}

	retryEveryJob = &action{methods: "POST", query: "state,after,limit,all", scope: Submit, run: (*Web).retryAll}

	add      = &action{methods: "POST", query: "delay,dt,wait,key,while,for_ms,mode,max_ms", body: true, scope: Submit, needsType: true, run: (*Web).add}
	addMixed = &action{methods: "POST", query: "jobtype,client,delay,dt,wait,key,while,for_ms,mode,max_ms", body: true, scope: Submit, run: (*Web).addAny}

	putHandler    = &action{methods: "POST,PUT", query: "lang,method", body: true, scope: Handle, needsType: true, run: (*Web).putHandler}
	deleteHandler = &action{methods: "POST,DELETE", scope: Handle, needsType: true, run: (*Web).deleteHandler}
	getHandler    = &action{methods: "GET", query: "id", scope: Handle, needsType: true, run: (*Web).getHandler}
	versions      = &action{methods: "GET", scope: Handle, needsType: true, run: (*Web).versions}

	oneSchedule = &action{methods: "GET,PUT,DELETE", scope: Read, run: (*Web).getSchedule, byMethod: map[string]*action{
		http.MethodPut:    {methods: "GET,PUT,DELETE", body: true, scope: Submit, run: (*Web).putSchedule},
		http.MethodDelete: {methods: "GET,PUT,DELETE", scope: Submit, run: (*Web).deleteSchedule},
	}}
	schedules = &action{methods: "GET", query: "limit,cursor", scope: Read, run: (*Web).schedules}

	oneJob = &action{methods: "GET,DELETE", scope: Read, run: (*Web).getJob, byMethod: map[string]*action{
		http.MethodDelete: {methods: "GET,DELETE", scope: Submit, run: (*Web).deleteJob},
	}}
	result   = &action{methods: "GET", scope: Read, run: (*Web).result}
	payload  = &action{methods: "GET", scope: Read, run: (*Web).payload}
	retry    = &action{methods: "POST", scope: Submit, run: (*Web).retry}
	runNow   = &action{methods: "POST", scope: Submit, run: (*Web).runNow}
	state    = &action{methods: "GET", scope: Read, run: (*Web).state}
	list     = &action{methods: "GET", query: "type,state,after,limit,last", scope: Read, run: (*Web).list}
	retryAll = &action{methods: "POST", query: "type,state,after,limit,all", scope: Submit, run: (*Web).retryAll}
)

// topActions holds the actions of paths without a client.
var topActions = map[string]*action{
	"": indexAction, "healthz": healthz, "readyz": readyz, "metrics": metrics,
	"start": start, "stop": stop, "quit": quit, "state": states, "add": addMixed, "aside": asides, "put-back": putBack,
	"jobs": listAll, "retry": retryEveryJob, "handlers": handlers, "schedules": allSchedules,
}

// fixedActions holds the actions of whole paths: those that all daemons of Gloom have for
// operators, and the files of the page. No request of a client has such a path.
var fixedActions = func() map[string]*action {
	m := map[string]*action{"/v1/status": status, "/v1/stats": stats, "/v1/findings": findings, "/v1/moments": lastMinutes}
	for _, path := range page.Site.Paths() {
		m[path] = file
	}
	return m
}()

// route returns the action of a path, or nil if there is none, and sets the request's client and
// name.
func route(r *request) *action {
	if a := fixedActions[r.URL.EscapedPath()]; a != nil {
		return a
	}
	path := make([]string, 0, 4)
	for part := range strings.SplitSeq(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/") {
		name, err := url.PathUnescape(part)
		if err != nil {
			return nil
		}
		path = append(path, api.Name(name))
	}
	if len(path) == 1 {
		return topActions[path[0]]
	}
	r.client = path[0]
	if r.client == "" {
		return nil
	}
	a := routeOfClient(r, path[1:])
	if a != nil && a.byMethod[r.Method] != nil {
		return a.byMethod[r.Method]
	}
	return a
}

// routeOfClient returns the action that a path requests, without the client at its beginning, and
// sets the request's name.
func routeOfClient(r *request, path []string) *action {
	if len(path) == 1 {
		return map[string]*action{"state": state, "jobs": list, "retry": retryAll, "schedule": schedules}[path[0]]
	}
	r.name = path[1]
	switch {
	case path[0] == "schedule" && len(path) == 2:
		return oneSchedule
	case path[0] == "job" && len(path) == 2:
		return add
	case path[0] == "job" && len(path) == 3:
		if path[2] == "add" { // this is an add, even if the type has the name of an action
			return add
		}
		r.name = path[2]
		return map[string]*action{"get": oneJob, "result": result, "payload": payload, "retry": retry, "run": runNow}[path[1]]
	case path[0] == "handler" && (len(path) == 3 || len(path) == 4):
		r.name = path[2]
		tail := map[string]*action{"add": putHandler, "del": deleteHandler, "get": getHandler, "versions": versions}
		if len(path) == 4 && (path[3] == "" || path[3] != map[string]string{"add": "add", "del": "delete"}[path[1]]) {
			return nil
		}
		return tail[path[1]]
	}
	return nil
}
