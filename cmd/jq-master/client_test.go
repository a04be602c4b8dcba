package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"gloom/cmd/jq-master/pack"
)

const (
	msgpackType = "application/msgpack"
	jsonType    = "application/json"
)

// client makes requests in one encoding and checks each exchange against openapi.yaml.
// The tests give bodies as JSON, whatever the encoding.
type client struct {
	t         testing.TB
	daemon    *process
	mediaType string
	token     string
	doc       routers.Router
	transport http.RoundTripper
}

func init() {
	decode := func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		data, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		if fault := pack.Check(data); fault != nil {
			return nil, fault
		}
		var v any
		return v, json.Unmarshal(pack.AppendJSON(nil, data), &v)
	}
	for _, name := range []string{msgpackType, "application/x-msgpack", "application/vnd.msgpack"} {
		openapi3filter.RegisterBodyDecoder(name, decode)
	}
}

func (daemon *process) client(t testing.TB, mediaType string) *client {
	t.Helper()
	text, err := os.ReadFile("web/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return &client{t, daemon, mediaType, "", router, http.DefaultTransport}
}

// reply is the master's reply to a request.
type reply struct {
	t       testing.TB
	request string // the request
	status  int
	header  http.Header
	text    string // the body, converted to JSON
}

// wantStatus fails the test unless the reply has this status.
func (r *reply) wantStatus(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("%s: status %d, want %d: %s", r.request, r.status, status, r.text)
	}
	return r
}

// wantRefusal fails the test unless the reply is an error with this status, code and field; "" stands
// for any field.
func (r *reply) wantRefusal(status int, code, field string) {
	r.t.Helper()
	if r.status != status || r.get("error") != code || field != "" && r.get("field") != field {
		r.t.Errorf("%s: status %d, %s, want %d, %s of %q", r.request, r.status, r.text, status, code, field)
	}
}

func (r *reply) decode() map[string]any {
	var m map[string]any
	if err := json.Unmarshal([]byte(r.text), &m); err != nil {
		r.t.Helper()
		r.t.Fatalf("%s: %v in %s", r.request, err, r.text)
	}
	return m
}

// get returns the value of a key in the body, as fmt prints it.
func (r *reply) get(key string) string { return fmt.Sprint(r.decode()[key]) }

// has fails the test unless the body has the keys and values of a JSON text; it may have others.
func (r *reply) has(text string) *reply {
	r.t.Helper()
	var want map[string]any
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		r.t.Fatal(err)
	}
	got := r.decode()
	for k, v := range want {
		if g, ok := got[k]; !ok || !reflect.DeepEqual(g, v) {
			r.t.Errorf("%s: %s is %v, want %v, in %s", r.request, k, g, v, r.text)
		}
	}
	return r
}

// do sends a request; body is a JSON text, "" for none. headers has a name
// and a value for each header.
func (c *client) do(method, path, body string, headers ...string) *reply {
	c.t.Helper()
	var data []byte
	if body != "" {
		data = []byte(body)
		if c.mediaType == msgpackType {
			var fault error
			if packed, f := pack.FromJSON(data); f == nil {
				data = packed
			} else {
				fault = f
			}
			if fault != nil {
				c.t.Fatalf("%s: %v", body, fault)
			}
		}
	}
	return c.send(method, path, data, headers...)
}

// send is like do, but sends the body unchanged.
func (c *client) send(method, path string, data []byte, headers ...string) *reply {
	c.t.Helper()
	r, err := http.NewRequest(method, c.daemon.url+path, bytes.NewReader(data))
	if err != nil {
		c.t.Fatal(err)
	}
	if data != nil {
		r.Header.Set("Content-Type", c.mediaType)
	}
	r.Header.Set("Accept", c.mediaType)
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		if headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	out := &reply{c.t, method + " " + path + " " + string(data), resp.StatusCode, resp.Header, string(raw)}
	c.checkContract(r, data, out, raw)
	if strings.HasSuffix(resp.Header.Get("Content-Type"), "msgpack") && len(raw) > 0 {
		if fault := pack.Check(raw); fault != nil {
			c.t.Fatalf("%s: %v in % x", out.request, fault, raw)
		}
		out.text = string(pack.AppendJSON(nil, raw))
	}
	return out
}

// checkContract checks the reply against openapi.yaml and, if the request was accepted, the request, too.
func (c *client) checkContract(r *http.Request, data []byte, out *reply, raw []byte) {
	c.t.Helper()
	route, params, err := c.doc.FindRoute(r)
	if err != nil {
		if out.status != http.StatusNotFound && out.status != http.StatusMethodNotAllowed {
			c.t.Errorf("%s is not described: %v", out.request, err)
		}
		return
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route, QueryParams: url.Values(r.URL.Query()),
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if out.status < 300 && (data == nil || r.Header.Get("Content-Type") != "") {
		r.Body = io.NopCloser(bytes.NewReader(data))
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			c.t.Errorf("%s was taken, the description says: %v", out.request, err)
		}
	}
	if r.Method == http.MethodHead {
		return
	}
	resp := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: out.status, Header: out.header, Options: in.Options}
	resp.SetBodyBytes(raw)
	if err := openapi3filter.ValidateResponse(context.Background(), resp); err != nil {
		c.t.Errorf("%s: %d %s is not what the description says: %v", out.request, out.status, out.text, err)
	}
}

// enqueue returns the id of a new job.
func (c *client) enqueue(body string) string {
	c.t.Helper()
	return c.do("POST", "/job", body).wantStatus(201).get("job_id")
}

// register returns the id of a new worker.
func (c *client) register(body string) string {
	c.t.Helper()
	return c.do("POST", "/worker", body).wantStatus(201).get("worker_id")
}

// pull takes jobs for a worker and returns their ids.
func (c *client) pull(worker string, max int) (ids []string) {
	c.t.Helper()
	r := c.do("POST", fmt.Sprintf("/worker/jobs?wait=30&max=%d", max), "", "worker-id", worker)
	if r.status == http.StatusNoContent {
		return nil
	}
	for _, j := range r.wantStatus(200).decode()["jobs"].([]any) {
		ids = append(ids, j.(map[string]any)["id"].(string))
	}
	return ids
}
