package admin_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/admin"
	gloom "gloom/clients/go"
)

func frame(format string, args ...any) []byte {
	p := fmt.Appendf(nil, format, args...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

// readPayload reads one frame.
func readPayload(t *testing.T, c net.Conn) string {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(45 * time.Second))
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(c, p); err != nil {
		t.Fatal(err)
	}
	return string(p)
}

// TestListingSurvivesChange reads peers while they connect and leave, and failed jobs while
// others replace them. It is a test for the race detector.
func TestListingSurvivesChange(t *testing.T) {
	w := start(t, nil)
	dial := func(a net.Addr) net.Conn {
		c, err := net.Dial("tcp", a.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	submitter, worker := dial(w.srv.SubmitAddr()), dial(w.srv.WorkerAddr())
	go func() { _, _ = io.Copy(io.Discard, submitter) }()
	go func() { _, _ = io.Copy(io.Discard, worker) }()

	done := make(chan struct{})
	var readers sync.WaitGroup
	h := admin.New(w.srv, zerolog.Nop())
	for _, path := range []string{"/v1/workers", "/v1/dead/t"} {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				out := httptest.NewRecorder()
				if h.ServeHTTP(out, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)); out.Code != http.StatusOK {
					t.Errorf("%s: %d %s", path, out.Code, out.Body)
					return
				}
			}
		})
	}
	_, _ = worker.Write(frame(`{"action":"join","type":"t"}`))
	for i := range 500 {
		_ = dial(w.srv.WorkerAddr()).Close()
		_, _ = submitter.Write(frame(`{"action":"submit","id":"%d","type":"t","body":"%099d"}`, i, i))
		_, _ = worker.Write(frame(`{"action":"fail","retry":false}`))
	}
	close(done)
	readers.Wait()
}

// TestShownLetterIsRetried: two failed jobs have one id. The job that is shown is the job that a
// retry submits.
func TestShownLetterIsRetried(t *testing.T) {
	w := start(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	jobs, err := gloom.Dial(ctx, gloom.Addrs(w.srv.SubmitAddr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Close()
	worker, err := net.Dial("tcp", w.srv.WorkerAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	_, _ = worker.Write(frame(`{"action":"join","type":"t"}`))
	for _, body := range []string{`"first"`, `"second"`} {
		pending, err := jobs.Submit(ctx, gloom.Job{ID: "same", Type: "t", Body: json.RawMessage(body)})
		if err != nil {
			t.Fatal(err)
		}
		for text := ""; !strings.Contains(text, `"job"`); {
			text = readPayload(t, worker)
		}
		_, _ = worker.Write(frame(`{"action":"fail","retry":false}`))
		if _, err := pending.Result(ctx); err == nil {
			t.Fatal("the job did not fail")
		}
	}
	for i, want := range []string{"second", "first"} { // the latest first, as in the list
		number := w.call("GET", "/v1/dead/t", "", 200)["items"].([]any)[i].(map[string]any)["no"]
		if x := w.call("GET", fmt.Sprintf("/v1/dead/t/same?no=%v", number), "", 200); x["body"] != want || x["no"] != number {
			t.Errorf("number %v is %v, want %s", number, x, want)
		}
	}
	for _, path := range []string{"same?no=9", "other?no=1"} {
		w.call("GET", "/v1/dead/t/"+path, "", 404)
		w.call("DELETE", "/v1/dead/t/"+path, "", 404)
	}
	shownBody := w.call("GET", "/v1/dead/t/same", "", 200)["body"]
	w.call("POST", "/v1/types/t/pause", "", 200)
	w.call("POST", "/v1/dead/t/same/retry", "", 200)
	remainingBody := w.call("GET", "/v1/dead/t/same", "", 200)["body"]
	lastNumber := w.call("GET", "/v1/dead/t/same", "", 200)["no"]
	w.call("DELETE", fmt.Sprintf("/v1/dead/t/same?no=%v", lastNumber), "", 200)
	w.call("DELETE", fmt.Sprintf("/v1/dead/t/same?no=%v", lastNumber), "", 404)
	if shownBody != "first" || remainingBody != "second" {
		t.Errorf("shown was %v, and a retry left %v", shownBody, remainingBody)
	}
}
