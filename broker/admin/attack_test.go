package admin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker"
)

// residentBytes is this process' memory, in bytes, after a collection.
func residentBytes(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// makeDeadLetter makes a failed job with a body.
func makeDeadLetter(w *world, id string, body []byte) {
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s, k := core.AddSubmitter(), core.AddWorker()
		core.Submit(now, s, &broker.Submission{ID: []byte(id), Type: []byte("t"), Body: body, Detach: true})
		core.Join(now, k, &broker.JoinRequest{Type: []byte("t")})
		core.Fail(now, k, &broker.Failure{Reason: "no", Delay: -1})
		core.RemovePeer(now, k)
		core.RemovePeer(now, s)
		return nil
	})
}

func httpGet(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", url, resp.Status, err)
	}
	return data
}

// TestBodiesVerbatim: the answer contains the exact bytes of a failed job's body, however
// deeply it is nested, and omits the body if the answer would be too long.
func TestBodiesVerbatim(t *testing.T) {
	w := start(t, nil)
	deepBody := strings.Repeat("[", 1000) + strings.Repeat("[[1 , 2],{\"a\":\t1.50}],", 50_000) + "0" + strings.Repeat("]", 1000)
	longBody := `"` + strings.Repeat("x", 16<<20) + `"`
	for id, body := range map[string]string{"plain": `{"n": 1.0}`, "deep": deepBody, "long": longBody} {
		makeDeadLetter(w, id, []byte(body))
		data := httpGet(t, w.url+"/v1/dead/t/"+id)
		if !json.Valid(data) {
			t.Errorf("%s: the answer of %d bytes is not JSON", id, len(data))
		}
		if len(data) > 16<<20 {
			t.Errorf("%s: the answer has %d bytes", id, len(data))
		}
		if whole := bytes.Contains(data, []byte(body)); whole != (id != "long") {
			t.Errorf("%s: the body is in the answer: %v", id, whole)
		}
		if want := fmt.Sprintf(`"bytes": %d`, len(body)); !bytes.Contains(data, []byte(want)) {
			t.Errorf("%s: the answer lacks %s", id, want)
		}
	}
}

// TestLongListingCanBeContinued: a listing that would be too long ends early and can be continued
// from there.
func TestLongListingCanBeContinued(t *testing.T) {
	const workers, jobsPerWorker = 1000, 16
	w := start(t, nil)
	id := func(n int) []byte { return fmt.Appendf(nil, "%s%06d", strings.Repeat("x", 1018), n) }
	typ := bytes.Repeat([]byte("t"), 1024)
	w.srv.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		s := core.AddSubmitter()
		for i := range workers {
			k := core.AddWorker()
			core.Join(now, k, &broker.JoinRequest{Type: typ, Prefetch: jobsPerWorker})
			for j := range jobsPerWorker {
				core.Submit(now, s, &broker.Submission{ID: id(i*jobsPerWorker + j), Type: typ, Body: []byte("1"), NoAck: true})
			}
		}
		return nil
	})
	seen := map[uint64]bool{}
	pages := 0
	for cursor := 0; cursor >= 0; pages++ {
		data := httpGet(t, fmt.Sprintf("%s/v1/workers?limit=1000&cursor=%d", w.url, cursor))
		if len(data) > 16<<20 {
			t.Fatalf("a page has %d bytes", len(data))
		}
		var page struct {
			Items []struct {
				Number uint64
				Jobs   []string
			}
			Next *int
		}
		if err := json.Unmarshal(data, &page); err != nil {
			t.Fatal(err)
		}
		for _, x := range page.Items {
			if seen[x.Number] || len(x.Jobs) != jobsPerWorker {
				t.Errorf("worker %d is listed with %d jobs, before: %v", x.Number, len(x.Jobs), seen[x.Number])
			}
			seen[x.Number] = true
		}
		cursor = -1
		if page.Next != nil {
			cursor = *page.Next
		}
	}
	if len(seen) != workers || pages < 2 {
		t.Errorf("%d workers of %d were listed on %d pages", len(seen), workers, pages)
	}
}

// TestUnreadAnswersDoNotBlock: hundreds of clients that request much and read nothing do not block health
// checks, cost little memory, and are disconnected.
func TestUnreadAnswersDoNotBlock(t *testing.T) {
	w := start(t, nil)
	makeDeadLetter(w, "big", []byte(`"`+strings.Repeat("x", 6<<20)+`"`))
	before := residentBytes(t)
	var conns []net.Conn
	for range 300 {
		c, err := net.Dial("tcp", w.srv.HTTPAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		if _, err := io.WriteString(c, "GET /v1/dead/t/big HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		httpGet(t, w.url+path)
	}
	if growth := residentBytes(t) - before; growth > 32<<20 {
		t.Errorf("%d clients that do not read cost %d MiB", len(conns), growth>>20)
	}
	// Some clients were disconnected to make room for the last ones: those whose requests took longest, or
	// whose requests the server had not begun to read.
	room, buffer := w.srv.Options().MaxHTTPConns, make([]byte, 64<<10) // only a client that reads much hears of a reset that it has missed
	for end := time.Now().Add(45 * time.Second); len(conns) > room; {
		if time.Now().After(end) {
			t.Fatalf("%d clients are connected, although there is room for %d", len(conns), room)
		}
		conns = slices.DeleteFunc(conns, func(c net.Conn) bool {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(buffer)
			return err != nil && !os.IsTimeout(err)
		})
	}
}

// TestUnreadingClientIsDisconnected: a client that does not read is disconnected even if there is room.
func TestUnreadingClientIsDisconnected(t *testing.T) {
	t.Parallel()
	w := start(t, nil)
	makeDeadLetter(w, "big", []byte(`"`+strings.Repeat("x", 6<<20)+`"`))
	c, err := net.Dial("tcp", w.srv.HTTPAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET /v1/dead/t/big HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	stacks := make([]byte, 1<<20)
	writes := func() bool {
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("answerWriter.Write"))
	}
	for _, want := range []bool{true, false} {
		for end := time.Now().Add(45 * time.Second); writes() != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("after 45 s, the answer is being written: %t", !want)
			}
		}
	}
	if n, _ := io.Copy(io.Discard, c); n >= 6<<20 {
		t.Errorf("it was sent all %d bytes", n)
	}
}
