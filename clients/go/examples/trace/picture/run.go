package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// span is a span that a program has sent.
type span struct {
	Service, Name     string
	Trace, ID, Parent string
	Start, End        uint64 // nanoseconds since 1970
}

// spans collects what programs send, like an OpenTelemetry collector.
type spans struct {
	mu  sync.Mutex // guards all
	all []span
}

// ServeHTTP implements http.Handler.
func (s *spans) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &sent)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, from := range sent.ResourceSpans {
		service := ""
		for _, a := range from.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range from.ScopeSpans {
			for _, x := range scope.Spans {
				s.all = append(s.all, span{
					service, x.Name, hex.EncodeToString(x.TraceId), hex.EncodeToString(x.SpanId), hex.EncodeToString(x.ParentSpanId),
					x.StartTimeUnixNano, x.EndTimeUnixNano,
				})
			}
		}
	}
}

// inTrace returns the spans of a trace, ordered by start.
func (s *spans) inTrace(trace string) []span {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.all), func(x span) bool { return x.Trace != trace })
	slices.SortFunc(all, func(a, b span) int { return int(int64(a.Start) - int64(b.Start)) })
	return all
}

const (
	// trace and caller are the ids of the request's trace, and of its sender's span.
	trace  = "0af7651916cd43dd8448eb211c80319c"
	caller = "b7ad6b7169203331"
	// wanted is how many spans a request causes.
	wanted   = 5
	patience = 30 * time.Second
)

// run starts a broker, a worker and a web server as programs of their own, sends a request, and
// returns the answer and the spans of its trace. The working directory must be the example's.
func run(dir string) (answer string, all []span, err error) {
	for name, from := range map[string][2]string{"gloomd": {"../../../..", "./cmd/gloomd"}, "trace": {".", "."}} {
		cmd := exec.Command("go", "build", "-C", from[0], "-o", filepath.Join(dir, name), from[1])
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", nil, fmt.Errorf("%v: %w: %s", cmd, err, out)
		}
	}
	var collected spans
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: &collected}
	go server.Serve(ln)
	defer server.Close()

	submit, work := filepath.Join(dir, "submit"), filepath.Join(dir, "work")
	web, err := freeAddr()
	if err != nil {
		return "", nil, err
	}
	for _, args := range [][]string{
		{"gloomd", "--submit-addr", "unix:" + submit, "--worker-addr", "unix:" + work, "--http-addr", "", "--log-format", "console"},
		{"trace", "-broker", "unix:" + work, "worker"},
		{"trace", "-broker", "unix:" + submit, "-listen", web, "web"},
	} {
		cmd := exec.Command(filepath.Join(dir, args[0]), args[1:]...)
		cmd.Env = append(os.Environ(), "OTEL_EXPORTER_OTLP_ENDPOINT=http://"+ln.Addr().String())
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return "", nil, err
		}
		defer func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}()
		if args[0] == "gloomd" {
			if err := waitFor(func() bool { _, err := os.Stat(work); return err == nil }); err != nil {
				return "", nil, fmt.Errorf("gloomd: %w", err)
			}
		}
	}
	if err := waitFor(func() bool { answer, err = ask("http://" + web + "/thumbnail?of=sea.jpg"); return err == nil }); err != nil {
		return "", nil, fmt.Errorf("web: %w", err)
	}
	if err := waitFor(func() bool { return len(collected.inTrace(trace)) >= wanted }); err != nil {
		return "", nil, fmt.Errorf("want %d spans, got %d: %w", wanted, len(collected.inTrace(trace)), err)
	}
	return answer, collected.inTrace(trace), nil
}

// ask sends a request that belongs to a trace.
func ask(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("traceparent", "00-"+trace+"-"+caller+"-01")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, said)
	}
	return string(said), err
}

func freeAddr() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer ln.Close()
	return ln.Addr().String(), nil
}

func waitFor(done func() bool) error {
	for end := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("timed out")
		}
	}
	return nil
}
