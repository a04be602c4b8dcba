package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/rs/zerolog"

	"gloom/broker"
	"gloom/broker/admin"
	"gloom/broker/admin/api"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
)

// world is a broker with its HTTP server, and the document that describes that.
type world struct {
	t      *testing.T
	srv    *server.Server
	url    string
	token  string
	router routers.Router
	// calledOperations are the operations whose success was checked.
	calledOperations map[string]bool
}

func start(t *testing.T, change func(*settings.Options)) *world {
	t.Helper()
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	if change != nil {
		change(&opt)
	}
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	srv.ServeHTTP(admin.New(srv, zerolog.Nop()))
	w := &world{t: t, srv: srv, url: "http://" + srv.HTTPAddr().String(), calledOperations: map[string]bool{}}
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if w.router, err = gorillamux.NewRouter(doc); err != nil {
		t.Fatal(err)
	}
	return w
}

// call makes a request, checks request and reply against the document, and
// decodes the reply.
func (w *world) call(method, path, body string, want int, headers ...string) map[string]any {
	w.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, w.url+path, in)
	if err != nil {
		w.t.Fatal(err)
	}
	if method != http.MethodGet {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if resp.StatusCode != want {
		w.t.Fatalf("%s %s: status %d, want %d: %s", method, path, resp.StatusCode, want, data)
	}
	w.checkDocumented(r, path, resp, data)
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		w.t.Fatalf("%s %s: %v in %s", method, path, err, data)
	}
	if want >= 400 && (out["error"] == "" || out["reason"] == "" || len(out) != 2 && out["id"] == nil) {
		w.t.Errorf("%s %s: an error without error and reason: %s", method, path, data)
	}
	return out
}

func (w *world) checkDocumented(r *http.Request, path string, resp *http.Response, data []byte) {
	w.t.Helper()
	req, err := http.NewRequest(r.Method, path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	route, params, err := w.router.FindRoute(req)
	if err != nil {
		return // not in the document: an unknown path
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 resp.StatusCode, Header: resp.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	in.SetBodyBytes(data)
	if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
		w.t.Errorf("%s %s: the reply is not what openapi.json says: %v\n%s", r.Method, path, err, data)
	}
	if resp.StatusCode < 300 {
		w.calledOperations[r.Method+" "+route.Path] = true
	}
}

func eventually(t *testing.T, name string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not: %s", name)
		}
	}
}

// TestEveryDocumentedOperation calls every operation of the document on a broker that has something
// to show. It fails if an operation is left out.
func TestEveryDocumentedOperation(t *testing.T) {
	w := start(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	sub, err := gloom.Dial(ctx, gloom.Addrs(w.srv.SubmitAddr().String()), gloom.ClientName("tester"))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	submit := func(id, typ string, job gloom.Job) *gloom.Pending {
		job.ID, job.Type = id, typ
		p, err := sub.Submit(ctx, job)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Ack(ctx); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := submit("first", "a/b c", gloom.Job{Priority: 7})
	submit("second", "a/b c", gloom.Job{})
	submit("later", "a/b c", gloom.Job{Delay: time.Hour})

	j := w.call("GET", "/v1/jobs/second", "", 200)
	if j["state"] != "queued" || j["ahead"] != 1.0 || j["ahead_exact"] != true || j["holds"] != "no worker has joined its type" {
		t.Errorf("second: %v", j)
	}
	if s := j["submitter"].(map[string]any); s["client"] != "tester" || s["address"] == "" {
		t.Errorf("submitter: %v", s)
	}
	if j := w.call("GET", "/v1/jobs/later", "", 200); j["state"] != "delayed" || j["due_seconds"].(float64) < 3500 {
		t.Errorf("later: %v", j)
	}
	submit("/", "/", gloom.Job{})
	slash := api.Segment("/")
	if j, ty := w.call("GET", "/v1/jobs/"+slash, "", 200), w.call("GET", "/v1/types/"+slash, "", 200); j["id"] != "/" || ty["type"] != "/" {
		t.Errorf("the names /: %v, %v", j, ty)
	}
	w.call("PUT", "/v1/groups/"+slash, `{"concurrency":1}`, 201)
	w.call("DELETE", "/v1/jobs/"+slash, "", 200)
	w.call("GET", "/v1/jobs/nobody", "", 404)
	ty := w.call("GET", "/v1/types/a%2Fb%20c", "", 200)
	if ty["type"] != "a/b c" || ty["ledger"].(map[string]any)["queued"] != 2.0 || ty["ledger"].(map[string]any)["delayed"] != 1.0 {
		t.Errorf("type: %v", ty)
	}
	w.call("GET", "/v1/types/none", "", 404)
	w.call("GET", "/v1/findings?limit=0", "", 400)
	eventually(t, "it is found that no worker serves the type", func() bool {
		return len(w.call("GET", "/v1/findings?subject=a%2Fb%20c", "", 200)["items"].([]any)) == 1
	})

	if x := w.call("POST", "/v1/types/a%2Fb%20c/pause", "", 200); x["paused"] != true {
		t.Errorf("pause: %v", x)
	}
	release := make(chan struct{})
	worker := &gloom.Worker{Type: "a/b c", Options: []gloom.Option{gloom.Addrs(w.srv.WorkerAddr().String())},
		Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
			if strings.HasPrefix(job.ID, "bad") {
				return nil, gloom.Fatal(fmt.Errorf("no good"))
			}
			<-release
			return job.ID, nil
		}}
	if err := worker.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer worker.Stop(ctx)
	eventually(t, "the worker has joined", func() bool {
		return w.call("GET", "/v1/types/a%2Fb%20c", "", 200)["idle"] == 1.0
	})
	if x := w.call("GET", "/v1/jobs/first", "", 200); x["holds"] != "its type is paused" {
		t.Errorf("paused: %v", x)
	}
	if x := w.call("PUT", "/v1/types/a%2Fb%20c/limits", `{"concurrency":3,"rate":50.5}`, 200); x["limits"].(map[string]any)["rate"] != 50.5 {
		t.Errorf("limits: %v", x)
	}
	w.call("POST", "/v1/types/a%2Fb%20c/resume", "{}", 200)
	eventually(t, "first runs", func() bool { return w.call("GET", "/v1/jobs/first", "", 200)["state"] == "running" })
	if x := w.call("DELETE", "/v1/jobs/first", "", 409); x["error"] != "running" {
		t.Errorf("delete of a running job: %v", x)
	}
	workers := w.call("GET", "/v1/workers", "", 200)["items"].([]any)
	if len(workers) != 1 || workers[0].(map[string]any)["jobs"].([]any)[0] != "first" {
		t.Errorf("workers: %v", workers)
	}
	if x := w.call("GET", "/v1/submitters?limit=1", "", 200)["items"].([]any); len(x) != 1 || x[0].(map[string]any)["jobs"] != 3.0 {
		t.Errorf("submitters: %v", x)
	}
	for range 2 { // first from the current state, then from the last snapshot
		if x := w.call("GET", "/v1/types/a%2Fb%20c", "", 200); x["submitters"] != 1.0 || x["workers"] != 1.0 {
			t.Errorf("the type has %v submitters and %v workers", x["submitters"], x["workers"])
		}
		w.call("GET", "/v1/findings", "", 200)
	}
	w.call("GET", "/v1/history?type=a/b%20c&since=1h", "", 200)
	w.call("PATCH", "/v1/jobs/later", `{"priority":2}`, 200)
	w.call("DELETE", "/v1/jobs/later", "", 200)
	w.call("DELETE", "/v1/jobs/later", "", 404)
	close(release)
	if r, err := first.Result(ctx); err != nil || string(r.Body) != `"first"` {
		t.Errorf("first: %s %v", r.Body, err)
	}
	if _, err := submit("bad", "a/b c", gloom.Job{Body: json.RawMessage(`{"x":1.50}`)}).Result(ctx); err == nil {
		t.Error("bad did not fail")
	}
	letters := w.call("GET", "/v1/dead/a%2Fb%20c", "", 200)["items"].([]any)
	if len(letters) != 1 || letters[0].(map[string]any)["reason"] != "no good" {
		t.Errorf("dead: %v", letters)
	}
	w.call("GET", "/v1/dead/a%2Fb%20c/nobody", "", 404)
	if x := w.call("GET", "/v1/dead?id=bad", "", 200)["items"].([]any); len(x) != 1 || x[0].(map[string]any)["type"] != "a/b c" {
		t.Errorf("by its id: %v", x)
	}
	if x := w.call("GET", "/v1/dead?id=ba", "", 200)["items"].([]any); len(x) != 0 {
		t.Errorf("by a part of its id: %v", x)
	}
	w.call("GET", "/v1/dead", "", 400)
	w.call("GET", "/v1/dead/a%2Fb%20c/bad", "", 200)
	w.call("POST", "/v1/dead/a%2Fb%20c/nobody/retry", "", 404)
	w.call("POST", "/v1/dead/a%2Fb%20c/bad/retry", "", 200)
	w.call("GET", "/v1/types", "", 200)
	w.call("PUT", "/v1/types/a%2Fb%20c", `{"fair":false}`, 200)
	w.call("POST", "/v1/types/mial/pause", "", 200)
	w.call("POST", "/v1/types/mial/resume", "", 200)
	w.call("DELETE", "/v1/types/mial", "", 200)
	w.call("PUT", "/v1/groups/x", `{"rate":1}`, 201)
	w.call("GET", "/v1/groups/x", "", 200)
	w.call("GET", "/v1/groups", "", 200)
	w.call("GET", "/v1/fleet", "", 200)
	w.call("DELETE", "/v1/groups/x", "", 200)
	w.call("GET", "/v1/types/a%2Fb%20c/demand", "", 200)
	w.call("GET", "/v1/types/a%2Fb%20c/jobs", "", 200)
	w.call("GET", "/v1/jobs?state=running", "", 200)
	w.call("POST", "/v1/jobs", `{"type":"b","body":1}`, 202)
	w.call("POST", "/v1/types/b/jobs/cancel", `{"all":true}`, 200)
	w.call("POST", "/v1/dead/a%2Fb%20c/retry", `{"all":true}`, 200)
	if _, err := submit("bad2", "a/b c", gloom.Job{}).Result(ctx); err == nil {
		t.Error("bad2 did not fail")
	}
	w.call("DELETE", "/v1/dead/a%2Fb%20c/bad2", "", 200)
	w.call("DELETE", "/v1/dead/a%2Fb%20c/bad2", "", 404)
	w.call("POST", "/v1/dead/a%2Fb%20c/discard", `{"all":true}`, 200)
	if x := w.call("GET", "/v1/status", "", 200); x["imbalance"] != 0.0 || x["submitters"] != 1.0 || x["limits"].(map[string]any)["max_types"] != float64(w.srv.Options().MaxTypes) {
		t.Errorf("status: %v", x)
	}
	if _, status := w.openEvents(t.Context()); status == http.StatusOK {
		w.calledOperations["GET /v1/events"] = true
	}
	w.call("POST", "/v1/drain", "", 202)
	resp, err := http.Get(w.url + "/readyz")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("readyz while draining: %v %v", resp, err)
	}
	w.checkCovered()
}

// checkCovered fails for each operation of the document that nothing has called.
func (w *world) checkCovered() {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.json")
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			n++
			if !w.calledOperations[method+" "+path] {
				w.t.Errorf("%s %s is described but was never called with success", method, path)
			}
		}
	}
	if n == 0 {
		w.t.Error("openapi.json describes nothing")
	}
}

// TestServedRoutesAreDescribed compares the served routes with the described routes.
func TestServedRoutesAreDescribed(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		t.Error(err)
	}
	methods := map[string][]string{}
	for path, item := range doc.Paths.Map() {
		for method, o := range item.Operations() {
			var keys []string
			for _, p := range slices.Concat(item.Parameters, o.Parameters) {
				if p.Value.In == "query" {
					keys = append(keys, p.Value.Name)
				}
			}
			slices.Sort(keys)
			methods[method+" "+path] = keys
		}
	}
	operations := admin.Operations()
	for _, keys := range operations {
		slices.Sort(keys)
	}
	if !maps.EqualFunc(methods, operations, slices.Equal) {
		t.Errorf("described:\n%v\nserved:\n%v", methods, operations)
	}
	w := start(t, nil)
	resp, err := http.Get(w.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	if !bytes.Contains(data, []byte(`"openapi"`)) {
		t.Error("/openapi.json does not serve the document")
	}
}

// TestInvalidRequestsAreRefused: invalid requests are refused with a reason.
func TestInvalidRequestsAreRefused(t *testing.T) {
	w := start(t, nil)
	for _, c := range []struct {
		method, path, body string
		status             int
		headers            []string
		want               string
	}{
		{"POST", "/v1/types/x/pause", "", 415, []string{"Content-Type", "text/plain"}, "text/plain"},
		{"POST", "/v1/types/x/pause", "", 415, []string{"Content-Type", ""}, "application/json"},
		{"PUT", "/v1/types/x/limits", `{"concurrency":-1}`, 400, nil, "-1"},
		{"PUT", "/v1/types/x/limits", `{"rate":1e99}`, 400, nil, "rate must be a number from 0 to 1e+09, got 1e99"},
		{"PUT", "/v1/types/x/limits", `{"concurrency":1000000001}`, 400, nil, "from 0 to 1000000000"},
		{"PUT", "/v1/types/x/limits", `{"rat":1}`, 400, nil, "rat"},
		{"PUT", "/v1/types/x/limits", `{`, 400, nil, "object"},
		{"PUT", "/v1/types/x/limits", `[]`, 400, nil, "object"},
		{"PUT", "/v1/types/x/limits", `null`, 400, nil, "object"},
		{"PUT", "/v1/types/x/limits", `{} {}`, 400, nil, "object"},
		{"PUT", "/v1/types/x/limits", "{\"\xff\":1}", 400, nil, "UTF-8"},
		{"PUT", "/v1/types/x/limits", `{"concurrency":"2"}`, 400, nil, `concurrency must be an integer`},
		{"PUT", "/v1/types/x/limits", `{"concurrency":5.0}`, 400, nil, "5.0"},
		{"PUT", "/v1/types/x/limits", `{"concurrency":99999999999999999999}`, 400, nil, "99999999999999999999"},
		{"PUT", "/v1/types/x/limits", `{"rate":"fast"}`, 400, nil, `rate must be a number from 0 to 1e+09, got "fast"`},
		{"PUT", "/v1/types/x/limits", `{"rate":-1}`, 400, nil, "-1"},
		{"POST", "/v1/types/x/pause", `{"now":1}`, 400, nil, "takes no keys"},
		{"PUT", "/v1/types/x/limits", `{"rate":` + strings.Repeat(" ", 70000) + `1}`, 413, nil, "65536"},
		{"GET", "/v1/types?limit=0", "", 400, nil, "limit"},
		{"GET", "/v1/types?limit=x", "", 400, nil, "limit"},
		{"GET", "/v1/workers?limit=1001", "", 400, nil, "1000"},
		{"GET", "/v1/types?cursor=-3", "", 400, nil, "cursor"},
		{"GET", "/v1/jobs/" + strings.Repeat("a", 1025), "", 400, nil, "1024"},
		{"GET", "/v1/jobs/%ff", "", 400, nil, "UTF-8"},
		{"GET", "/v1/nothing", "", 404, nil, "/v1/nothing"},
		{"GET", "/nothing", "", 404, nil, "/nothing"},
		{"POST", "/app.js", "", 405, nil, "GET, HEAD"},
		{"POST", "/", "", 405, nil, "GET, HEAD"},
		{"GET", "/v1/types/%2F", "", 404, nil, `no job or worker of type "/"`},
		{"GET", "/v1/types/%FF%2F", "", 404, nil, `no job or worker of type "/"`},
		{"PATCH", "/v1/types/x", "", 405, nil, "GET, HEAD, PUT"},
	} {
		e := w.call(c.method, c.path, c.body, c.status, c.headers...)
		if !strings.Contains(fmt.Sprint(e["reason"]), c.want) {
			t.Errorf("%s %.60s: %v does not name %q", c.method, c.path, e, c.want)
		}
	}
}

// TestOneTypeTooManyIsRefused: one type too many is refused like one job too many.
func TestOneTypeTooManyIsRefused(t *testing.T) {
	w := start(t, func(o *settings.Options) { o.MaxTypes = 1 })
	w.call("PUT", "/v1/types/one", `{"fair":true}`, 200)
	for path, body := range map[string]string{"": `{"fair":true}`, "/limits": `{"concurrency":1}`, "/pause": ""} {
		method := map[bool]string{true: "POST", false: "PUT"}[body == ""]
		if e := w.call(method, "/v1/types/two"+path, body, 503); e["error"] != "overloaded" || !strings.Contains(fmt.Sprint(e["reason"]), "max-types") {
			t.Errorf("%s: %v", path, e)
		}
	}
	w.call("GET", "/v1/types/two", "", 404)
}

// TestForgetUnservedType: a type that no worker serves can be forgotten once it holds nothing, or
// together with its jobs; its counts stay in the totals.
func TestForgetUnservedType(t *testing.T) {
	w := start(t, nil)
	var worker broker.Peer
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s := core.AddSubmitter()
		worker = core.AddWorker()
		core.Submit(now, s, &broker.Submission{ID: []byte("dead"), Type: []byte("mial"), Body: []byte("1"), Detach: true})
		core.Submit(now, s, &broker.Submission{ID: []byte("kept"), Type: []byte("mial"), Body: []byte("1"), Keep: time.Hour})
		core.RemovePeer(now, s)
		core.Submit(now, core.AddSubmitter(), &broker.Submission{ID: []byte("other"), Type: []byte("mail"), Body: []byte("1")})
		core.Join(now, worker, &broker.JoinRequest{Type: []byte("mial")})
		return nil
	})
	expectRefusal := func(path, code, why string) {
		t.Helper()
		if e := w.call("DELETE", "/v1/types/mial"+path, "", 409); e["error"] != code || !strings.Contains(fmt.Sprint(e["reason"]), why) {
			t.Errorf("%s: %v", path, e)
		}
	}
	expectRefusal("", "in_use", "workers serve it")
	expectRefusal("?jobs=true", "in_use", "workers serve it, 1 job is running")
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		core.Fail(now, worker, &broker.Failure{Reason: "no", NoRetry: true, Delay: -1})
		core.Respond(now, worker, nil, []byte("1"), false)
		core.RemovePeer(now, worker)
		return core.Submit(now, core.AddSubmitter(), &broker.Submission{ID: []byte("waits"), Type: []byte("mial"), Body: []byte("1"), Delay: time.Hour})
	})
	expectRefusal("", "not_empty", "1 job is waiting, 1 failed job is kept, 1 outcome is kept; ?jobs=true")
	w.call("DELETE", "/v1/types/mial?jobs=maybe", "", 400)
	w.call("POST", "/v1/types/mial/pause", "", 200)
	expectRefusal("?jobs=true", "in_use", "it is paused")
	w.call("POST", "/v1/types/mial/resume", "", 200)
	if x := w.call("DELETE", "/v1/types/mial?jobs=true", "", 200); x["discarded"] != 1. || x["dead"] != 1. || x["outcomes"] != 1. || x["type"] != "mial" {
		t.Errorf("forgotten: %v", x)
	}
	w.call("DELETE", "/v1/types/mial", "", 404)
	w.call("GET", "/v1/types/mial", "", 404)
	if x := w.call("GET", "/v1/jobs/waits", "", 200); x["outcome"] != "discarded" {
		t.Errorf("what waited: %v", x)
	}
	l := w.call("GET", "/v1/status", "", 200)["ledger"].(map[string]any)
	if l["submitted"] != 4. || l["answered"] != 1. || l["failed"] != 1. || l["discarded"] != 1. || l["queued"] != 1. {
		t.Errorf("the totals: %v", l)
	}
	if items := w.call("GET", "/v1/types?sort=type", "", 200)["items"].([]any); len(items) != 1 {
		t.Errorf("listed: %v", items)
	}
}

// TestHostsThatRequestsMayName checks under which names and addresses requests are accepted.
func TestHostsThatRequestsMayName(t *testing.T) {
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	withHosts := func(o *settings.Options) { o.HTTPHosts, o.Pprof = "gloom.example, other.example", true }
	onAllAddrs := func(o *settings.Options) { o.HTTPAddr, o.Insecure = "0.0.0.0:0", true }
	for _, c := range []struct {
		change                 func(*settings.Options)
		ownHosts, foreignHosts []string
	}{
		{
			withHosts,
			[]string{"localhost", "localhost:9997", "127.0.0.1:1", "127.9.9.9", "[::1]:9997", "[::1]", hostname, "gloom.example", "OTHER.example:80"},
			[]string{"evil.example", "evil.example:80", "localhost.evil.example", "10.0.0.1", "gloom.example.evil", "[2001:db8::1]:80"},
		},
		{onAllAddrs, []string{"10.0.0.1:9997", "[2001:db8::1]", "localhost"}, []string{"evil.example", "gloom.example"}},
	} {
		w := start(t, c.change)
		if port := w.srv.HTTPAddr().(*net.TCPAddr).Port; w.srv.HTTPAddr().(*net.TCPAddr).IP.IsUnspecified() {
			w.url = fmt.Sprintf("http://127.0.0.1:%d", port)
		}
		for _, h := range c.ownHosts {
			w.call("POST", "/v1/types/x/resume", "", 200, "Host", h)
			w.call("GET", "/v1/status", "", 200, "Host", h)
		}
		for _, h := range c.foreignHosts {
			for _, path := range []string{"GET /v1/status", "GET /v1/nothing", "GET /v1", "POST /v1/drain", "DELETE /v1/jobs/x", "GET /debug/pprof/", "GET /"} {
				method, path, _ := strings.Cut(path, " ")
				e := w.call(method, path, "", 403, "Host", h)
				if reason := fmt.Sprint(e["reason"]); !strings.Contains(reason, h) || !strings.Contains(reason, "http-hosts") {
					t.Errorf("%s %s: %v", method, path, e)
				}
			}
			for _, path := range []string{"/healthz", "/metrics"} {
				r, _ := http.NewRequest(http.MethodGet, w.url+path, nil)
				r.Host = h
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("%s by the name %s: %s", path, h, resp.Status)
				}
			}
		}
	}
}
