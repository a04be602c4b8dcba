package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"gloom/cmd/internal/cli"
	"gloom/cmd/jobd/eot"
)

// member returns a member of an object; nil if there is none.
func member(object json.RawMessage, name string) json.RawMessage {
	return eot.Object(eot.Members(object)).Get(name)
}

// pollRequest is the data of a status request.
type pollRequest struct {
	PollWorkers bool `json:"poll_workers"`
}

// showStatus returns the function of a command that shows a part of the daemon's status. print
// prints the part as text; with --json the command prints a member of the status, or the whole
// status if part is "". If poll is true, a master asks its workers for their status, and the
// command fails unless all of them answer.
func (a *app) showStatus(part string, poll bool, print func(status json.RawMessage) error) func([]string) error {
	return func([]string) error {
		poll := poll && a.settings.Master
		var data any
		if poll {
			data = pollRequest{true}
		}
		status, err := a.request("status", data, false)
		if err == nil && part != "memoryUsage" { // every daemon has that
			err = a.checkStatus(status)
		}
		if err != nil {
			return err
		}
		switch {
		case a.json && part != "":
			err = a.printJSON(member(status, part))
		case a.json:
			err = a.printJSON(status)
		default:
			err = print(status)
		}
		if poll {
			err = errors.Join(err, unresponsive(status))
		}
		return err
	}
}

// checkStatus checks that a status is that of a worker or of a master, as the settings say.
func (a *app) checkStatus(status json.RawMessage) error {
	switch {
	case a.settings.Master && member(status, "workers") == nil:
		return cli.Failf(cli.ExitFailed, "the daemon has answered without workers").SetHint("it may be a jobd: leave out --master, or use --master=false")
	case !a.settings.Master && member(status, "targets") == nil:
		return cli.Failf(cli.ExitFailed, "the daemon has answered without targets").SetHint("it may be a jobd-master: add --master")
	}
	return nil
}

// unresponsive returns an error for the workers that did not report their status.
func unresponsive(s json.RawMessage) error {
	var unresponsive []error
	for _, w := range eot.Elements(member(s, "workers")) {
		if member(w, "workerStatus") == nil {
			unresponsive = append(unresponsive, fmt.Errorf("worker '%s' (%s): %s", eot.String(member(w, "name")), eot.String(member(w, "remoteAddr")), eot.String(member(w, "workerStatusError"))))
		}
	}
	return errors.Join(unresponsive...)
}

// printStatus prints all tables of a status.
func (a *app) printStatus(status json.RawMessage) error {
	t := targetTable(status)
	if a.settings.Master {
		t = workerTable(status)
	}
	err := a.print(t)
	fmt.Fprintln(a.stdout)
	return errors.Join(err, a.print(memoryTable(status, statusNames)))
}

// targetRows returns name, concurrency, length and paused of each target in a worker's status, in the
// order of the status.
func targetRows(s json.RawMessage) (rows [][]string) {
	for _, m := range eot.Members(member(s, "targets")) {
		o := eot.Object(eot.Members(m.Value))
		paused := "no"
		if eot.IsTruthy(o.Get("paused")) {
			paused = "yes"
		}
		rows = append(rows, []string{m.Name, string(o.Get("concurrency")), string(o.Get("length")), paused})
	}
	return rows
}

func targetTable(s json.RawMessage) *grid {
	t := newGrid("target", "concurrency", "length", "paused")
	for _, row := range targetRows(s) {
		t.add(row...)
	}
	return t
}

// workerTable returns the workers in a master's status, with the targets of each.
func workerTable(s json.RawMessage) *grid {
	t := newGrid("worker", "targets", "concurrency", "length", "paused")
	for _, w := range eot.Elements(member(s, "workers")) {
		rows := targetRows(member(w, "workerStatus"))
		if member(w, "workerStatus") == nil {
			for _, e := range eot.Elements(member(w, "targets")) {
				rows = append(rows, []string{eot.String(e), "-", "-", "-"})
			}
		}
		cells := [][]string{{eot.String(member(w, "name")), "(" + eot.String(member(w, "remoteAddr")) + ")"}, nil, nil, nil, nil}
		for _, row := range rows {
			for i, text := range row {
				cells[i+1] = append(cells[i+1], text)
			}
		}
		t.addLines(cells...)
	}
	return t
}

// statusNames are the names in the command status, which is new here. The command memory-usage keeps
// the protocol's names, which scripts know.
var statusNames = map[string]string{
	"rss": "resident bytes", "heapTotal": "heap bytes", "heapUsed": "heap bytes in use", "external": "other bytes",
	"pendingJobPromises": "jobs that clients wait for",
}

// memoryTable returns the memory use in a status, and the number of jobs for which clients wait,
// which only a worker's status has. If names is not nil, it gives the rows other names; rows
// without one are left out.
func memoryTable(s json.RawMessage, names map[string]string) *grid {
	t := newGrid("what", "value")
	add := func(name string, value json.RawMessage) {
		if names != nil {
			name = names[name]
		}
		if name != "" {
			t.add(name, string(value))
		}
	}
	for _, m := range eot.Members(member(s, "memoryUsage")) {
		add(m.Name, m.Value)
	}
	if n := member(s, "jobPromisesCount"); n != nil {
		add("pendingJobPromises", n)
	}
	return t
}
