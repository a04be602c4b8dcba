package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/launch"
	"gloom/cmd/jobd/eot"
)

var (
	errNoIDs  = errors.New("no ids specified")
	errFailed = errors.New("not all jobs have succeeded")
	errUnsent = errors.New("not all jobs could be signalled")
	errTarget = cli.Failf(cli.ExitFailed, "no target specified").SetHint("add --target: the master finds the worker by the target")
)

func (a *app) runManualCommand() *cobra.Command {
	var target string
	var output bool
	c := &cobra.Command{
		Use: "run-manual ID...", Short: "Run manual jobs and wait until they have ended",
		Long: "Runs jobs whose status is manual, and waits until they have ended.\n" +
			"The exit code is 0 when all have succeeded.",
	}
	c.Flags().StringVar(&target, "target", "", "the jobs' `target` (with --master)")
	c.Flags().BoolVar(&output, "output", false, "print the stdout and stderr of the jobs")
	c.RunE = a.action(forBoth, func(args []string) error { return a.runManual(args, target, output) })
	return c
}

func (a *app) runManual(args []string, target string, output bool) error {
	ids, err := idsOf(args)
	if err != nil {
		return err
	}
	var data any = map[string][]int64{"ids": ids}
	if a.settings.Master {
		if data, err = masterJobs(ids, nil, target); err != nil {
			return err
		}
	}
	answer, err := a.request("run-manual", data, true)
	if err != nil {
		return err
	}
	results, errs := eot.Members(member(answer, "jobs")), eot.Members(member(answer, "errors"))
	errs = append(errs, missingResults(ids, results, errs)...)
	failed := len(errs) > 0
	t := newGrid("id", "result", "code", "signal", "error")
	for _, m := range results {
		job := eot.Object(eot.Members(m.Value))
		result := eot.String(job.Get("result"))
		failed = failed || result != "ok"
		t.add(m.Name, result, textOrDash(job.Get("code")), textOrDash(job.Get("signal")), "")
		if output && !a.json {
			if _, err := fmt.Fprint(a.stdout, eot.String(job.Get("stdout"))); err != nil {
				return err
			}
			fmt.Fprint(a.stderr, eot.String(job.Get("stderr")))
		}
	}
	for _, m := range errs {
		t.add(m.Name, "-", "-", "-", eot.String(m.Value))
	}
	switch {
	case a.json:
		err = a.printJSON(answer)
	case !output || len(errs) > 0:
		err = a.print(t)
	}
	if err == nil && failed {
		return errFailed
	}
	return err
}

// missingResults returns an error for each job about which an answer says nothing.
func missingResults(ids []int64, results, errs eot.Object) (missing []eot.Member) {
	text := json.RawMessage(`"the daemon has answered without a result for this job"`)
	for _, id := range ids {
		name := strconv.FormatInt(id, 10)
		if results.Get(name) == nil && errs.Get(name) == nil {
			missing = append(missing, eot.Member{Name: name, Value: text})
		}
	}
	return missing
}

type masterJob struct {
	ID     int64  `json:"id"`
	Signal *int   `json:"signal,omitempty"`
	Target string `json:"target"`
}

// masterJobs returns the data of a request to the master, which finds the worker by the target.
func masterJobs(ids []int64, signal *int, target string) (any, error) {
	if target == "" {
		return nil, errTarget
	}
	var jobs []masterJob
	for _, id := range ids {
		jobs = append(jobs, masterJob{id, signal, target})
	}
	return map[string][]masterJob{"jobs": jobs}, nil
}

func (a *app) sendSignalCommand() *cobra.Command {
	var target string
	c := &cobra.Command{
		Use: "send-signal SIGNAL ID...", Short: "Send a signal, by name or number, to running jobs",
	}
	c.Flags().StringVar(&target, "target", "", "the jobs' `target` (with --master)")
	c.RunE = a.action(forBoth, func(args []string) error { return a.sendSignal(args, target) })
	return c
}

func (a *app) sendSignal(args []string, target string) error {
	if len(args) < 2 {
		return errArguments()
	}
	signal, err := signalOf(args[0])
	if err != nil {
		return err
	}
	ids, err := idsOf(args[1:])
	if err != nil {
		return err
	}
	signals := make(map[string]int)
	for _, id := range ids {
		signals[strconv.FormatInt(id, 10)] = signal
	}
	var data any = map[string]map[string]int{"jobs": signals}
	if a.settings.Master {
		if data, err = masterJobs(ids, &signal, target); err != nil {
			return err
		}
	}
	answer, err := a.request("send-signal", data, false)
	if err != nil {
		return err
	}
	results, errs := eot.Members(answer), eot.Members(member(answer, "errors"))
	errs = append(errs, missingResults(ids, results, errs)...)
	t, unsent := newGrid("id", "sent", "error"), len(errs) > 0
	for _, m := range results {
		if m.Name == "errors" {
			continue
		}
		result := "yes"
		if !eot.IsTruthy(m.Value) {
			result, unsent = "no", true
		}
		t.add(m.Name, result, "")
	}
	for _, e := range errs {
		t.add(e.Name, "no", eot.String(e.Value))
	}
	if a.json {
		err = a.printJSON(answer)
	} else {
		err = a.print(t)
	}
	if err == nil && unsent {
		return errUnsent
	}
	return err
}

// signalOf reads a signal: a number, or a name with or without SIG.
func signalOf(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil && n >= 0 && n <= 64 {
		return n, nil
	}
	name := strings.ToUpper(text)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if s, ok := launch.ParseSignal(name); ok {
		return int(s), nil
	}
	return 0, fmt.Errorf("unknown signal '%s'", text)
}

func idsOf(args []string) (ids []int64, err error) {
	if len(args) == 0 {
		return nil, errNoIDs
	}
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("id must be a number, got '%s'", arg)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// textOrDash shows a value that may be null.
func textOrDash(raw json.RawMessage) string {
	switch {
	case raw == nil || string(raw) == "null":
		return "-"
	case eot.TypeOf(raw) == "string":
		return eot.String(raw)
	}
	return string(raw)
}
