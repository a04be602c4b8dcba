package attack

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gloom/bench/proc"
	"gloom/bench/throwaway"
	_ "gloom/broker/admin" // part of gloomd, so a change of it makes these tests run again
)

var runFull = flag.Bool("full", false, "attack for scaleTime, with more peers")

const (
	mib      = 1 << 20
	patience = 45 * time.Second
	// budget is the memory limit of the attacked broker. maxMemory limits the broker's resident
	// memory.
	budget    = 128 * mib
	maxMemory = budget*5/4 + 64*mib
)

var scratchDir string

func TestMain(m *testing.M) {
	os.Exit(throwaway.Main(&scratchDir, func() (int, error) { return m.Run(), nil }))
}

var gloomd = sync.OnceValues(func() (string, error) { return throwaway.Build(scratchDir, "gloomd", false) })

// daemon is a gloomd under attack.
type daemon struct {
	*throwaway.Daemon
	t              *testing.T
	submit, worker string
	http           string
	hasTLS         bool
	peers          []*peer // the open ones
}

// start starts a gloomd whose limits are shares of budget.
func start(t *testing.T, flags ...string) *daemon {
	t.Helper()
	bin, err := gloomd()
	if err != nil {
		t.Fatal(err)
	}
	p, err := throwaway.Start(exec.Command(bin, append([]string{
		"--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0", "--drain-timeout=1s",
		"--max-memory=" + strconv.Itoa(budget),
	}, flags...)...), "gloomd is ready")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{Daemon: p, t: t, submit: p.Field("submit_addr"), worker: p.Field("worker_addr"), http: p.Field("http_addr")}
	t.Cleanup(func() {
		d.hangUp()
		p.Kill()
		if t.Failed() {
			t.Logf("gloomd said:\n%s", throwaway.Tail([]byte(p.Log.String())))
		}
	})
	return d
}

// residentBytes returns the daemon's resident memory in bytes.
func (d *daemon) residentBytes() int64 {
	n, err := proc.ResidentMemory(d.PID())
	if err != nil {
		d.t.Fatalf("gloomd has gone: %v", err)
	}
	return n
}

// memoryParts returns the memory that the daemon's metrics report, in bytes by part.
func (d *daemon) memoryParts() (text string) {
	answer, err := http.Get("http://" + d.http + "/metrics")
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		d.t.Errorf("/metrics: %s: %s", answer.Status, text)
		return ""
	}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "gloom_memory_bytes") || strings.HasPrefix(lines.Text(), "go_memstats_heap") {
			text += "\n" + lines.Text()
		}
	}
	return text
}

// peer is a connection to the daemon.
type peer struct {
	net.Conn
	t *testing.T
}

func (d *daemon) dial(addr string) *peer {
	d.t.Helper()
	c, err := d.tryDial(addr)
	if err != nil {
		d.t.Fatal(err)
	}
	p := &peer{c, d.t}
	d.peers = append(d.peers, p)
	return p
}

// hangUp closes all connections.
func (d *daemon) hangUp() {
	for _, p := range d.peers {
		_ = p.Close()
	}
	d.peers = nil
}

func (d *daemon) tryDial(addr string) (net.Conn, error) {
	if d.hasTLS {
		return tls.DialWithDialer(&net.Dialer{Timeout: patience}, "tcp", addr, &tls.Config{InsecureSkipVerify: true})
	}
	return net.DialTimeout("tcp", addr, patience)
}

func packFrame(format string, args ...any) []byte {
	p := fmt.Appendf(nil, format, args...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)
}

// trySend writes for at most one second, and reports whether all of b was written.
func (p *peer) trySend(b []byte) bool {
	_ = p.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := p.Write(b)
	return err == nil
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	_ = p.SetWriteDeadline(time.Now().Add(patience))
	if _, err := p.Write(packFrame(format, args...)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) next() (string, error) { return p.nextWithin(patience) }

// nextWithin reads a frame, which must arrive within d.
func (p *peer) nextWithin(d time.Duration) (string, error) {
	_ = p.SetReadDeadline(time.Now().Add(d))
	var head [4]byte
	if _, err := io.ReadFull(p, head[:]); err != nil {
		return "", err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(p, b)
	return string(b), err
}

// wantFrame reads a frame, whose payload must begin with prefix.
func (p *peer) wantFrame(prefix string) {
	p.t.Helper()
	if got, err := p.next(); err != nil || !strings.HasPrefix(got, prefix) {
		p.t.Fatalf("got %.200q, %v; want %q", got, err, prefix)
	}
}

// checkServed checks that an innocent worker gets and answers an innocent submitter's job.
func (d *daemon) checkServed(name string) {
	d.t.Helper()
	s, w := d.dial(d.submit), d.dial(d.worker)
	w.send(`{"action":"join","type":%q}`, name)
	w.wantFrame(`{"ok":true}`)
	s.send(`{"action":"submit","id":%q,"type":%q,"body":1}`, name, name)
	s.wantFrame(`{"ok":true`)
	w.wantFrame(`{"action":"job"`)
	w.send(`{"action":"respond","body":2}`)
	s.wantFrame(`{"id":`)
	_, _ = s.Close(), w.Close()
}

// watchMemory samples the resident memory until the returned function is called, which returns the
// highest value.
func (d *daemon) watchMemory() (stop func() int64) {
	end, peak := make(chan struct{}), make(chan int64)
	go func() {
		high := int64(0)
		for t := time.NewTicker(5 * time.Millisecond); ; {
			high = max(high, d.residentBytes())
			select {
			case <-end:
				t.Stop()
				peak <- high
				return
			case <-t.C:
			}
		}
	}()
	return func() int64 { close(end); return <-peak }
}

// checkBounded runs an attack. The test fails if memory grows beyond the bound, or does not shrink
// soon after the attack.
func (d *daemon) checkBounded(attack func()) {
	d.t.Helper()
	d.checkServed("before")
	before := d.residentBytes()
	stop := d.watchMemory()
	attack()
	d.checkServed("after")
	peak := stop()
	if peak > maxMemory {
		d.t.Errorf("resident memory rose to %d MiB, at most %d are allowed", peak/mib, maxMemory/mib)
	}
	end := time.Now()
	for d.residentBytes() > before+64*mib {
		if time.Since(end) > patience {
			d.t.Errorf("%v after the attack %d MiB are resident, %d before it; held is%s", patience, d.residentBytes()/mib, before/mib, d.memoryParts())
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	d.t.Logf("resident: %d MiB before, %d at the peak, %d after %v; held is%s", before/mib, peak/mib, d.residentBytes()/mib, time.Since(end).Round(time.Second), d.memoryParts())
}

// writeCertificate writes a certificate and its key, and returns the flags that name them.
func writeCertificate(t *testing.T) []string {
	dir := t.TempDir()
	if err := throwaway.WriteCerts(dir); err != nil {
		t.Fatal(err)
	}
	return []string{"--tls-cert=" + filepath.Join(dir, "server.pem"), "--tls-key=" + filepath.Join(dir, "server.key")}
}
