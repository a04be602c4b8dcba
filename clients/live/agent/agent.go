// Package agent drives the clients of all languages in the same way. For each client there is a
// small program here, which reads commands from its standard input, executes them with the
// client, and reports the results on its standard output.
//
// Commands and reports are lines of JSON. A body in them is a string that holds JSON, so that
// each byte of it can be compared.
//
// A submitter's program gets a [Command] on each line. It may begin a command before earlier ones
// have ended, and reports the result of each under the command's tag.
//
// A worker's program gets no commands. The body of each job tells its handler what to do. It is
// an object, and the first of these keys that it has counts:
//
//	fail         throws an error with this text
//	fatal        the same, and no retry would help
//	retry_after  fails, and asks for this many milliseconds before the next run
//	release      gives the job back for this many milliseconds, once for each id
//	unwanted     waits until nobody waits for the run, then reports "unwanted" and the job's id
//	sleep        answers after this many milliseconds
//	exit         ends the process at once, without a report
//	progress     sends this as progress, then answers with the body
//	headers      answers with the job's headers
//	type         answers with the job's type
//
// With any other body, the handler answers with the body. The program reports "joined" when it
// has joined, and "left" before it ends by SIGTERM.
package agent

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Language is a language that has a client, and a program that drives the client.
type Language struct {
	Name    string
	command []string
}

// Languages returns all languages that have a client. clients is the folder of that name in a
// checkout; a program that must be built is put into the folder scratch.
func Languages(clients, scratch string) ([]Language, error) {
	clients, err := filepath.Abs(clients)
	if err != nil {
		return nil, err
	}
	agentDir := filepath.Join(clients, "live/agent")
	program := filepath.Join(scratch, "goagent")
	build := exec.Command("go", "build", "-o", program, "./goagent")
	build.Dir = agentDir
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the program of Go: %w\n%s", err, out)
	}
	return []Language{
		{"go", []string{program}},
		{"python", []string{"/usr/bin/python3", filepath.Join(agentDir, "agent.py")}},
		{"node", []string{"node", filepath.Join(agentDir, "agent.mjs")}},
		{"php", []string{"php", filepath.Join(agentDir, "agent.php")}},
	}, nil
}

// Options holds the options of the client that a program makes. Durations are milliseconds.
type Options struct {
	Addrs       []string `json:"addrs"`
	Token       string   `json:"token,omitempty"`
	CA          string   `json:"ca,omitempty"` // a file of CA certificates to trust; if set, connections use TLS
	Heartbeat   int      `json:"heartbeat,omitempty"`
	Backoff     [2]int   `json:"backoff"`
	Window      int      `json:"window,omitempty"`      // of a submitter
	Types       []string `json:"types,omitempty"`       // of a worker
	Except      []string `json:"except,omitempty"`      // of a worker
	Headers     bool     `json:"headers,omitempty"`     // of a worker
	Concurrency int      `json:"concurrency,omitempty"` // of a worker
}

// Command is a command for a submitter's program.
type Command struct {
	Do   string `json:"do"` // submit, attach, cancel, change, ping, drain, leave, close; bench: Count jobs, Window at a time
	Tag  string `json:"tag"`
	ID   string `json:"id,omitempty"`
	Type string `json:"type,omitempty"`
	Body string `json:"body,omitempty"`

	Priority    *int64          `json:"priority,omitempty"`
	Delay       *int            `json:"delay,omitempty"`
	Timeout     int             `json:"timeout,omitempty"`
	Retries     *int            `json:"retries,omitempty"`
	Backoff     *int            `json:"backoff,omitempty"`
	Expires     int             `json:"expires,omitempty"`
	Age         int             `json:"age,omitempty"`
	Keep        int             `json:"keep,omitempty"`
	AtLeastOnce bool            `json:"at_least_once,omitempty"`
	Detach      bool            `json:"detach,omitempty"`
	Groups      []string        `json:"groups,omitempty"`
	Headers     json.RawMessage `json:"headers,omitempty"`
	Progress    bool            `json:"progress,omitempty"`

	Count  int `json:"count,omitempty"`
	Window int `json:"window,omitempty"`
}

// Event is a report of a program. One of the fields after Tag is set.
type Event struct {
	Tag      string   `json:"tag"`
	Acked    bool     `json:"acked"`    // the broker has the job
	Progress *string  `json:"progress"` // of the job
	Result   *string  `json:"result"`   // the end of the job
	OK       bool     `json:"ok"`       // the command is done
	Error    *Failure `json:"error"`    // the end of the job or command
	Seconds  float64  `json:"seconds"`  // duration of a bench

	Joined   bool   `json:"joined"`
	Left     bool   `json:"left"`
	Unwanted string `json:"unwanted"`
}

// Failure is an error of a client.
type Failure struct {
	Kind   string `json:"kind"` // refused, job, lost, not connected, closed; anything else is a mistake
	Code   string `json:"code"` // of refused and job
	Reason string `json:"reason"`
	Final  bool   `json:"final"`
	Lost   bool   `json:"lost"`
	Acked  bool   `json:"acked"` // of lost
	Sent   bool   `json:"sent"`  // of lost
}

// Agent is a running program.
type Agent struct {
	Events chan Event // closed when the program has ended

	cmd   *exec.Cmd
	mu    sync.Mutex // of in
	in    io.WriteCloser
	ended chan struct{}
	err   error
}

// Start starts the program of a language as "submitter" or "worker". Its standard error goes to
// stderr.
func (l Language) Start(role string, options Options, stderr io.Writer) (*Agent, error) {
	optionsJSON, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(l.command[0], append(l.command[1:len(l.command):len(l.command)], role, string(optionsJSON))...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	a := &Agent{Events: make(chan Event, 1024), cmd: cmd, in: in, ended: make(chan struct{})}
	go a.read(out)
	return a, nil
}

func (a *Agent) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			a.err = fmt.Errorf("told %q: %w", lines.Text(), err)
			a.Kill()
			break
		}
		a.Events <- e
	}
	io.Copy(io.Discard, out)
	if err := a.cmd.Wait(); a.err == nil {
		a.err = err
	}
	close(a.Events)
	close(a.ended)
}

// Tell gives a submitter a command.
func (a *Agent) Tell(c Command) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err = a.in.Write(append(line, '\n'))
	return err
}

// Stop sends a signal.
func (a *Agent) Stop(sig os.Signal) { a.cmd.Process.Signal(sig) }

// Kill ends the program at once.
func (a *Agent) Kill() { a.cmd.Process.Kill() }

// Wait waits until the program has ended, and returns nil if it ended with status 0.
func (a *Agent) Wait(patience time.Duration) error {
	a.in.Close()
	select {
	case <-a.ended:
		return a.err
	case <-time.After(patience):
		a.Kill()
		return fmt.Errorf("still there after %v", patience)
	}
}
