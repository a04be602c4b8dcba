package control_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"gloom/cmd/internal/testing/controltest"
	"gloom/cmd/internal/testing/peertest"
	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/peer"
)

// serveEngine serves an engine on its own port.
func serveEngine(t *testing.T, e *controltest.Engine) *peer.Server {
	t.Helper()
	s, err := peer.Listen("127.0.0.1", 0, peer.Options{Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(control.Routes(e))
	t.Cleanup(s.Close)
	return s
}

func newTable() *controltest.Engine {
	zero, seven, term := 0, 7, "SIGTERM"
	e := controltest.New("w1/low", "toString", "__proto__", "b", "a", "1")
	e.SetQueueLength("b", 2)
	e.Put(34, controltest.Job{Target: "nobody", Status: "manual"})
	e.Put(35, controltest.Job{Target: "a", Status: "done"})
	e.Put(37, controltest.Job{Target: "a", Status: "manual", Outcome: control.JobResult{Result: "ok", Code: &zero, Stdout: "o", Stderr: "e"}})
	e.Put(38, controltest.Job{Target: "a", Status: "manual", Outcome: control.JobResult{Result: "fail", Signal: &term}})
	e.Put(39, controltest.Job{Target: "a", Status: "manual", Outcome: control.JobResult{Result: "fail", Code: &seven, Stdout: "é\x04\"<&>\xff"}})
	e.Put(46, controltest.Job{Target: "a", Status: "running", IsRunning: true})
	e.Put(47, controltest.Job{Target: "a", Status: "accepted"})
	e.Put(1<<53+1, controltest.Job{Target: "a", Status: "manual", Outcome: control.JobResult{Result: "ok", Code: &zero}})
	e.Put(1<<53, controltest.Job{Target: "a", Status: "done"})
	return e
}

func TestRequestsCallEngine(t *testing.T) {
	const (
		ok      = `"data":"ok"`
		pollAll = "poll []"
		done    = `{"result":"ok","code":0,"signal":null,"stdout":"o","stderr":"e"}`
	)
	wantError := func(text string) string { return `"error":"` + text + `"` }
	tests := []struct {
		typ, data string // of the request; no data when ""
		want      string // the part of the response after its number
		calls     string // which methods of the engine were called
	}{
		{"poll", ``, ok, pollAll},
		{"poll", `null`, ok, pollAll},
		{"poll", `[]`, ok, pollAll},
		{"poll", `["w1/low"]`, ok, pollAll},
		{"poll", `"w1/low"`, ok, pollAll},
		{"poll", `7`, ok, pollAll},
		{"poll", `0`, ok, pollAll},
		{"poll", `{}`, ok, pollAll},
		{"poll", `{"target":"a"}`, ok, pollAll},
		{"poll", `{"targets":["a","w1/low","a"]}`, ok, "poll [a w1/low a]"},
		{"poll", `{"targets":["toString","__proto__"]}`, ok, "poll [toString __proto__]"},
		{"poll", `{"targets":[]}`, wantError("targets are empty"), ""},
		{"poll", `{"targets":"a"}`, wantError("targets must be array"), ""},
		{"poll", `{"targets":null}`, wantError("targets must be array"), ""},
		{"poll", `{"targets":{"0":"a"}}`, wantError("targets must be array"), ""},
		{"poll", `{"targets":["a",1]}`, wantError("all targets must be strings, number given"), ""},
		{"poll", `{"targets":["nope",null]}`, wantError("all targets must be strings, object given"), ""},
		{"poll", `{"targets":[true]}`, wantError("all targets must be strings, boolean given"), ""},
		{"poll", `{"targets":["a","nope","neither"]}`, wantError("invalid target 'nope'"), ""},
		{"poll", `{"targets":["constructor"]}`, wantError("invalid target 'constructor'"), ""},

		{"pause", ``, ok, "pause []"},
		{"pause", `{"targets":["a"]}`, ok, "pause [a]"},
		{"pause", `{"targets":["a"]}`, ok, "pause [a]"},
		{"pause", `{"targets":["hasOwnProperty"]}`, wantError("invalid target 'hasOwnProperty'"), ""},
		{"continue", `{"targets":["a"]}`, ok, "continue [a]"},
		{"continue", `[]`, ok, "continue []"},
		{"continue", `{"targets":[]}`, wantError("targets are empty"), ""},

		{"add-target", ``, wantError("missing required field target"), ""},
		{"add-target", `[]`, wantError("missing required field target"), ""},
		{"add-target", `"x"`, wantError("data is not an object"), ""},
		{"add-target", `5`, wantError("data is not an object"), ""},
		{"add-target", `{"target":5,"concurrency":1}`, wantError("'target' must be string"), ""},
		{"add-target", `{"target":"new"}`, wantError("missing required field concurrency"), ""},
		{"add-target", `{"target":"new","concurrency":"1"}`, wantError("'concurrency' must be integer"), ""},
		{"add-target", `{"target":"new","concurrency":1.5}`, wantError("'concurrency' must be integer"), ""},
		{"add-target", `{"target":"new","concurrency":0}`, wantError("Invalid concurrency value."), ""},
		{"add-target", `{"target":"new","concurrency":-1}`, wantError("Invalid concurrency value."), ""},
		{"add-target", `{"target":"new","concurrency":1e300}`, wantError("Invalid concurrency value."), ""},
		{"add-target", `{"target":"a","concurrency":1}`, wantError("target 'a' already added"), ""},
		{"add-target", `{"target":"new","concurrency":2.0}`, ok, ""},
		{"set-target-concurrency", `{"target":"new","concurrency":9}`, ok, ""},
		{"set-target-concurrency", `{"target":"valueOf","concurrency":9}`, wantError("target 'valueOf' not found"), ""},
		{"set-target-concurrency", `{"target":"new","concurrency":0}`, wantError("Invalid concurrency value."), ""},
		{"set-target-concurrency", `{"concurrency":9}`, wantError("missing required field target"), ""},
		{"remove-target", `{"target":"b"}`, wantError("queue is not empty"), ""},
		{"remove-target", `{"target":"new"}`, ok, ""},
		{"remove-target", `{"target":"new"}`, wantError("target 'new' not found"), ""},
		{"remove-target", `{"target":[]}`, wantError("'target' must be string"), ""},
		{"remove-target", ``, wantError("missing required field target"), ""},

		{"run-manual", `{"ids":[37]}`, `"data":{"jobs":{"37":` + done + `}}`, "run-manual [37]"},
		{"run-manual", `{"ids":[37,37.0,37]}`, `"data":{"jobs":{"37":` + done + `}}`, "run-manual [37]"},
		{"run-manual", `{"ids":[999,37,35,34]}`,
			`"data":{"jobs":{"37":` + done + `},"errors":{"34":"target 'nobody' not found (job id=34)","35":"status = done != manual","999":"job 999 not found"}}`,
			"run-manual [999 37 35 34]"},
		{"run-manual", `{"ids":[38]}`, `"data":{"jobs":{"38":{"result":"fail","code":null,"signal":"SIGTERM","stdout":"","stderr":""}}}`, "run-manual [38]"},
		{"run-manual", `{"ids":[39]}`, `"data":{"jobs":{"39":{"result":"fail","code":7,"signal":null,"stdout":"é\u0004\"<&>` + "\ufffd" + `","stderr":""}}}`, "run-manual [39]"},
		{"run-manual", `{"ids":[-5,0.5]}`, `"data":{"errors":{"-5":"job -5 cannot be run: ids begin at 0","0.5":"job 0.5 not found"}}`, ""},
		{"run-manual", `{"ids":[999]}`, `"data":{"errors":{"999":"job 999 not found"}}`, "run-manual [999]"},
		{"run-manual", `{"ids":[1.5,1e30]}`, `"data":{"errors":{"1.5":"job 1.5 not found","1e+30":"job 1e+30 not found"}}`, ""},
		{"run-manual", `{"ids":[9007199254740993,9007199254740992,9007199254740993]}`,
			`"data":{"jobs":{"9007199254740993":{"result":"ok","code":0,"signal":null,"stdout":"","stderr":""}},"errors":{"9007199254740992":"status = done != manual"}}`,
			"run-manual [9007199254740993 9007199254740992]"},
		{"run-manual", `{"ids":[9007199254740993.0,9223372036854775807,9223372036854775808]}`,
			`"data":{"errors":{"9223372036854775807":"job 9223372036854775807 not found","9007199254740992":"job 9007199254740992 not found","9223372036854776000":"job 9223372036854776000 not found"}}`,
			"run-manual [9223372036854775807]"},
		{"run-manual", `{"ids":[37,"38"]}`, wantError("all ids must be numbers, got string"), ""},
		{"run-manual", `{"ids":[null]}`, wantError("all ids must be numbers, got object"), ""},
		{"run-manual", `{"ids":[true]}`, wantError("all ids must be numbers, got boolean"), ""},
		{"run-manual", `{"ids":[]}`, wantError("ids are empty"), ""},
		{"run-manual", `{"ids":37}`, wantError("'ids' must be array"), ""},
		{"run-manual", `{}`, wantError("missing required field ids"), ""},
		{"run-manual", ``, wantError("missing required field ids"), ""},

		{"send-signal", `{"jobs":{"46":15,"999":9}}`, `"data":{"46":true,"999":false}`, "signal 46 15,signal 999 9"},
		{"send-signal", `{"jobs":{"46":"SIGUSR1"}}`, `"data":{"46":true}`, "signal 46 10"},
		{"send-signal", `{"jobs":{"46":"sigusr1"}}`, `"data":{"46":true}`, "signal 46 10"},
		{"send-signal", `{"jobs":{"46":"SIGIOT"}}`, `"data":{"46":true}`, "signal 46 6"},
		{"send-signal", `{"jobs":{"46":0}}`, `"data":{"46":true}`, "signal 46 0"},
		{"send-signal", `{"jobs":{"46":64}}`, `"data":{"46":true}`, "signal 46 64"},
		{"send-signal", `{"jobs":{"47":15}}`, `"data":{"47":false}`, "signal 47 15"},
		{"send-signal", `{"jobs":{"46":"USR1"}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"46":"NOPE"}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"46":"15"}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"46":""}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"46":999}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"46":-1}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"46":15.5}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"46":null}}`, `"data":{"46":false}`, ""},
		{"send-signal", `{"jobs":{"x":15,"46":9}}`, `"data":{"x":false,"46":true}`, "signal 46 9"},
		{"send-signal", `{"jobs":[15,9]}`, `"data":{"0":false,"1":false}`, "signal 0 15,signal 1 9"},
		{"send-signal", `{"jobs":{}}`, `"data":{}`, ""},
		{"send-signal", `{"jobs":5}`, `"data":{}`, ""},
		{"send-signal", `{}`, `"data":{}`, ""},
		{"send-signal", ``, `"data":{}`, ""},

		{"recover", ``, `"data":{"recovered":3}`, "recover"},
		{"poke", ``, wantError("unknown request type: 'poke'"), ""},
	}
	e := newTable()
	c := peertest.Dial(t, serveEngine(t, e).Addr().String())
	for _, tc := range tests {
		request := `[0,{"no":1,"type":"` + tc.typ + `"`
		if tc.data != "" {
			request += `,"data":` + tc.data
		}
		if got, want := c.Ask(request+"}]"), `[1,{"no":1,`+tc.want+"}]"; got != want {
			t.Errorf("%s %s\ngot  %s\nwant %s", tc.typ, tc.data, got, want)
		}
		if calls := strings.Join(e.Calls(), ","); calls != tc.calls {
			t.Errorf("%s %s: engine was asked %q, want %q", tc.typ, tc.data, calls, tc.calls)
		}
	}
}

func TestStatusListsTargets(t *testing.T) {
	e := newTable()
	e.Pause([]string{"a"})
	c := peertest.Dial(t, serveEngine(t, e).Addr().String())
	got := c.Ask(`[0,{"no":4,"type":"status","data":"whatever"}]`)
	memory := regexp.MustCompile(`"memoryUsage":\{"rss":\d+,"heapTotal":\d+,"heapUsed":\d+,"external":\d+,"arrayBuffers":\d+\}`)
	got = memory.ReplaceAllString(got, `"memoryUsage":MEMORY`)
	want := `[1,{"no":4,"data":{"targets":{` +
		`"w1/low":{"paused":false,"concurrency":1,"length":0},` +
		`"toString":{"paused":false,"concurrency":2,"length":0},` +
		`"__proto__":{"paused":false,"concurrency":3,"length":0},` +
		`"b":{"paused":false,"concurrency":4,"length":2},` +
		`"a":{"paused":true,"concurrency":5,"length":0},` +
		`"1":{"paused":false,"concurrency":6,"length":0}},` +
		`"jobPromisesCount":0,"memoryUsage":MEMORY}}]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	empty := peertest.Dial(t, serveEngine(t, controltest.New()).Addr().String())
	if got := empty.Ask(`[0,{"no":1,"type":"status"}]`); !strings.HasPrefix(got, `[1,{"no":1,"data":{"targets":{},"jobPromisesCount":0,`) {
		t.Error(got)
	}
}

func TestRunManualWaits(t *testing.T) {
	e := newTable()
	hold := make(chan struct{})
	zero := 0
	e.Put(43, controltest.Job{Target: "a", Status: "manual", Hold: hold, Outcome: control.JobResult{Result: "ok", Code: &zero}})
	addr := serveEngine(t, e).Addr().String()
	first, second := peertest.Dial(t, addr), peertest.Dial(t, addr)
	first.Write(`[0,{"no":1,"type":"run-manual","data":{"ids":[43]}}]|`)
	waiting := func(n float64) func() bool {
		return func() bool {
			return peertest.DecodeData(t, second.Ask(`[0,{"no":2,"type":"status"}]`))["jobPromisesCount"] == n
		}
	}
	peertest.WaitUntil(t, "the job is waited for", waiting(1))
	first.ExpectNothing()
	if got, want := second.Ask(`[0,{"no":3,"type":"run-manual","data":{"ids":[37,43]}}]`),
		`[1,{"no":3,"error":"another client is already waiting for job 43"}]`; got != want {
		t.Errorf("got %s", got)
	}
	close(hold)
	first.Expect(`[1,{"no":1,"data":{"jobs":{"43":{"result":"ok","code":0,"signal":null,"stdout":"","stderr":""}}}}]`)

	// A client that has disconnected does not keep its ids from other clients.
	e.Put(44, controltest.Job{Target: "a", Status: "manual", Hold: make(chan struct{})})
	first.Write(`[0,{"no":1,"type":"run-manual","data":{"ids":[44]}}]|`)
	peertest.WaitUntil(t, "the job is waited for", waiting(1))
	first.Reset()
	peertest.WaitUntil(t, "nobody waits any more", waiting(0))
}

func TestEngineErrorsReachClient(t *testing.T) {
	e := newTable()
	e.SetError(errors.New("the database is away"))
	c := peertest.Dial(t, serveEngine(t, e).Addr().String())
	for _, request := range []string{`"run-manual","data":{"ids":[37]}`, `"recover"`} {
		if got := c.Ask(`[0,{"no":1,"type":` + request + `}]`); got != `[1,{"no":1,"error":"the database is away"}]` {
			t.Errorf("%s: %s", request, got)
		}
	}
}

// TestPHPAnswers: the PHP client takes everything before the last 0x04 for its answer, and refuses
// data of some types.
func TestPHPAnswers(t *testing.T) {
	e := newTable()
	c := peertest.Dial(t, serveEngine(t, e).Addr().String())
	for typ := range control.Routes(e) {
		for _, data := range []string{"", `,"data":{}`, `,"data":{"targets":["a"]}`, `,"data":{"target":"a","concurrency":1}`, `,"data":{"ids":[37]}`, `,"data":{"jobs":{"46":9}}`} {
			got := c.Ask(`[0,{"no":12,"type":"` + typ + `"` + data + `}]`)
			var message []json.RawMessage
			var body map[string]any
			if err := json.Unmarshal([]byte(got), &message); err != nil || len(message) != 2 || json.Unmarshal(message[1], &body) != nil {
				t.Fatalf("%s: %s", typ, got)
			}
			if string(message[0]) != "1" || !strings.HasPrefix(string(message[1]), `{"no":12,`) {
				t.Errorf("%s: %s", typ, got)
			}
			if _, boolean := body["data"].(bool); boolean {
				t.Errorf("%s: bare boolean in %s", typ, got)
			}
			if len(body) != 2 {
				t.Errorf("%s: want exactly one of data and error in %s", typ, got)
			}
		}
	}
	c.ExpectNothing()
}
