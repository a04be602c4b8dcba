package admin_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"gloom/broker/admin"
)

func frame(format string, args ...any) []byte {
	p := fmt.Appendf(nil, format, args...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

// TestLookAmidChange looks at peers while they come and go, and at failed jobs
// while they are pushed out by others. What it is about, the race detector says.
func TestLookAmidChange(t *testing.T) {
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
	var lookers sync.WaitGroup
	h := admin.New(w.srv, zerolog.Nop())
	for _, path := range []string{"/v1/workers", "/v1/dead/t"} {
		lookers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				out := httptest.NewRecorder()
				if h.ServeHTTP(out, httptest.NewRequest(http.MethodGet, path, nil)); out.Code != http.StatusOK {
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
	lookers.Wait()
}
