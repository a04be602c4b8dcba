package master

import (
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"

	gloom "gloom/clients/go"
)

// TestRulesWaitForTheConnection: a rule goes to a broker that the jobs have reached. Otherwise the
// broker could end unnoticed, and the jobs would reach the next broker, which has no rules.
func TestRulesWaitForTheConnection(t *testing.T) {
	rules := make(chan string, 10)
	operators := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { rules <- r.URL.Path }))
	defer operators.Close()
	submits, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer submits.Close()
	l, err := openBrokerConn(Broker{
		Submitter: []gloom.Option{gloom.Addrs(submits.Addr().String())},
		Rules:     Rules{Base: operators.URL, HTTP: operators.Client()},
		Close:     func() {},
	}, "", 10, func(func(*machine)) {}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	l.setRule(ruleChange{pattern: "c:default:k", concurrency: 2})
	conn, err := submits.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	select {
	case path := <-rules:
		t.Fatalf("%s without a connection for jobs", path)
	case <-time.After(100 * time.Millisecond):
	}
	go func() { // it accepts every request
		for head := make([]byte, 4); ; {
			if _, err := io.ReadFull(conn, head); err != nil {
				return
			}
			if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head))); err != nil {
				return
			}
			if _, err := conn.Write([]byte("\x00\x00\x00\x0b{\"ok\":true}")); err != nil {
				return
			}
		}
	}()
	select {
	case <-rules:
	case <-time.After(45 * time.Second):
		t.Fatal("the rule is not sent")
	}
}

// TestServedInFleet: a broker whose fleet has other brokers cannot tell that no worker serves a
// type.
func TestServedInFleet(t *testing.T) {
	for name, test := range map[string]struct {
		typ, fleet string
		want       bool
	}{
		"no fleet":            {`{"workers":0}`, `{"member":false,"brokers":[]}`, false},
		"a worker here":       {`{"workers":1}`, "", true},
		"alone in its fleet":  {`{"workers":0}`, `{"member":true,"brokers":[]}`, false},
		"another broker":      {`{"workers":0}`, `{"member":true,"brokers":[{"state":"up"}]}`, true},
		"no broker that runs": {`{"workers":0}`, `{"member":true,"brokers":[{"state":"draining"},{"state":"foreign"}]}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			operators := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				reply := test.typ
				if r.URL.Path == "/v1/fleet" {
					reply = test.fleet
				}
				_, _ = io.WriteString(w, reply)
			}))
			defer operators.Close()
			rules := Rules{Base: operators.URL, HTTP: operators.Client()}
			if got := rules.Served(t.Context(), "jq.mail"); got != test.want {
				t.Errorf("served: %v, want %v", got, test.want)
			}
		})
	}
}
