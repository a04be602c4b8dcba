package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

// TestSignalEndsAttachWithoutLoss: a signal ends attach when the broker has sent outcomes that
// attach has not read. attach prints these outcomes, because the broker no longer keeps them; the
// broker keeps all other outcomes.
func TestSignalEndsAttachWithoutLoss(t *testing.T) {
	t.Parallel()
	b, err := startBroker(t.TempDir(), "--submit-addr", "127.0.0.1:0", "--worker-addr", "127.0.0.1:0", "--http-addr", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	dial := func() *gloom.Submitter {
		s, err := gloom.Dial(t.Context(), gloom.Addrs(b.submit))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	jobs := dial()
	const n = 200
	body := []byte(`"` + strings.Repeat("x", 10_000) + `"`) // more than fits the reader's memory
	ids := make([]string, n+1)
	for i := range ids {
		ids[i] = fmt.Sprintf("k%d", i)
		typ := "later"
		if i == n {
			typ = "now"
		}
		p, err := jobs.Submit(t.Context(), gloom.Job{ID: ids[i], Type: typ, Body: body, Keep: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	jobs.Close()
	work := func(typ string) {
		cmd := exec.Command(filepath.Join(bin, "gloom"), "work", "-q", typ, "--worker-addr", b.worker, "--", "cat")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
	attach := func(ids []string) (*exec.Cmd, *os.File) {
		out, err := os.CreateTemp(t.TempDir(), "out")
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(filepath.Join(bin, "gloom"), "attach", "--submit-addr", b.submit, "--records", "--ids", "-")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(strings.Join(ids, "\n")+"\n"), out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		return cmd, out
	}
	readIDs := func(out *os.File) map[string]bool {
		text, _ := os.ReadFile(out.Name())
		found := map[string]bool{}
		for line := range bytes.Lines(text) {
			for _, id := range ids {
				if bytes.Contains(line, []byte(`"`+id+`"`)) && bytes.Contains(line, body) {
					found[id] = true
				}
			}
		}
		return found
	}

	cmd, out := attach(ids)
	work("now")
	for deadline := time.Now().Add(patience); len(readIDs(out)) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the last job has no answer, so the others may not be attached to")
		}
	}
	cmd.Process.Signal(syscall.SIGSTOP)
	work("later")
	if _, err := dial().Do(t.Context(), gloom.Job{Type: "later", Priority: -1}); err != nil { // the others have ended
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGINT)
	cmd.Process.Signal(syscall.SIGCONT)
	cmd.Wait()
	earlierIDs := readIDs(out)
	var rest []string
	for _, id := range ids {
		if !earlierIDs[id] {
			rest = append(rest, id)
		}
	}
	if len(rest) == 0 {
		return
	}
	cmd, out = attach(rest)
	if err := cmd.Wait(); err != nil || len(readIDs(out)) != len(rest) {
		t.Errorf("%d answers before the signal, then %d of %d: %v", len(earlierIDs), len(readIDs(out)), len(rest), err)
	}
}

// TestSignalEndsSubmitWithoutLoss: when a signal ends submit --keep, an outcome that the broker has sent, but that has
// not been read, is printed. Without an outcome the job continues.
func TestSignalEndsSubmitWithoutLoss(t *testing.T) {
	t.Parallel()
	b, err := startBroker(t.TempDir(), "--submit-addr", "127.0.0.1:0", "--worker-addr", "127.0.0.1:0", "--http-addr", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	jobs, err := gloom.Dial(t.Context(), gloom.Addrs(b.submit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { jobs.Close() })
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, typ := range []string{"works", "fails", "waits"} {
			begun, finish := make(chan struct{}, 1), make(chan struct{})
			w := &gloom.Worker{Type: typ, Options: []gloom.Option{gloom.Addrs(b.worker)}, Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
				begun <- struct{}{}
				<-finish
				if typ == "fails" {
					return nil, gloom.Fatal(errors.New("as told"))
				}
				return job.Body, nil
			}}
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(filepath.Join(bin, "gloom"), "submit", "--submit-addr", b.submit, typ, "hello", "--keep", "1h", "--id", typ)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			<-begun
			cmd.Process.Signal(syscall.SIGSTOP)
			if typ != "waits" {
				close(finish)
				w.Stop(t.Context()) // once the broker has the answer
			}
			cmd.Process.Signal(sig)
			cmd.Process.Signal(syscall.SIGCONT)
			cmd.Wait()
			want := map[string]string{"works": "0 hello\n", "fails": "1 ", "waits": fmt.Sprint(128+int(sig), " ")}[typ]
			if got := fmt.Sprint(cmd.ProcessState.ExitCode(), " ", stdout.String()); got != want {
				t.Errorf("%v, %s: status and output %q, want %q; it said:\n%s", sig, typ, got, want, stderr.String())
			}
			if typ != "waits" {
				continue
			}
			if !strings.Contains(stderr.String(), "job waits continues") {
				t.Errorf("%v: it said %q of a job that continues", sig, stderr.String())
			}
			p, err := jobs.Attach(t.Context(), typ, nil)
			if err != nil {
				t.Fatal(err)
			}
			close(finish)
			if r, err := p.Result(t.Context()); err != nil || string(r.Body) != `"hello"` {
				t.Errorf("%v: attached to it: %s, %v", sig, r.Body, err)
			}
			w.Stop(t.Context())
		}
	}
}

// TestUnreadStderr: when nobody reads the standard error of gloom work, jobs and signals do not
// wait. A later reader is told how many lines were lost.
func TestUnreadStderr(t *testing.T) {
	t.Parallel()
	b, err := startBroker(t.TempDir(), "--submit-addr", "127.0.0.1:0", "--worker-addr", "127.0.0.1:0", "--http-addr", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command(filepath.Join(bin, "gloom"), "work", "-v", "--stderr", "-j", "2", "--worker-addr", b.worker, "x", "--", "sh", "-c", "head -c 10000 /dev/zero | tr '\\0' e >&2; cat")
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })
	jobs, err := gloom.Dial(t.Context(), gloom.Addrs(b.submit))
	if err != nil {
		t.Fatal(err)
	}
	defer jobs.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	do := func() {
		if _, err := jobs.Do(ctx, gloom.Job{Type: "x", Body: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	const n = 30 // their lines are more than a pipe holds
	for range n {
		do()
	}
	noticeRead := make(chan error, 1)
	go func() {
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadString('\n')
			if err != nil || strings.Contains(line, "gloom: lost ") && strings.HasSuffix(line, ", because nobody read standard error\n") {
				noticeRead <- err
				return
			}
		}
	}()
	for reading := true; reading; {
		select {
		case err := <-noticeRead:
			if err != nil {
				t.Fatal(err)
			}
			reading = false
		default:
			do() // lost, too, until the reader has made room
		}
	}
	for range n {
		do()
	}
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("a signal does not end it")
	}
}

// TestRefusedWithUnreadStderr: a worker that every broker refuses ends with the status of the
// refusal, also when nobody reads its standard error.
func TestRefusedWithUnreadStderr(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("secret submit,work\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := startBroker(t.TempDir(), "--submit-addr", "127.0.0.1:0", "--worker-addr", "127.0.0.1:0", "--http-addr", "", "--token-file", tokens)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for size := 1 << 16; size > 0; size >>= 1 { // fills the pipe
		w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		for err = nil; err == nil; {
			_, err = w.Write(make([]byte, size))
		}
	}
	cmd := exec.Command(filepath.Join(bin, "gloom"), "work", "--worker-addr", b.worker, "x", "--", "cat")
	cmd.Stderr = w
	cmd.Env = append(os.Environ(), "GLOOM_TOKEN=wrong")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if code := cmd.ProcessState.ExitCode(); code != refusalStatus(gloom.ErrUnauthorized) {
			t.Errorf("exit status %d, %v", code, err)
		}
	case <-time.After(patience):
		cmd.Process.Kill()
		t.Error("it does not end")
	}
}
