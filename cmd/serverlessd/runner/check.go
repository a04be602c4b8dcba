package runner

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"gloom/cmd/internal/launch"
	"gloom/cmd/serverlessd/job"

	"golang.org/x/sys/unix"
)

// The check compiles a source with the interpreter that will run it, under the limits of a handler
// process, but does not run it.

//go:embed driver/check.js
var nodeCheck string

//go:embed driver/check.py
var pythonCheck string

// compiler says how sources of a language are checked: by a command that reads a source from its
// standard input. The command exits with 0, or prints the fault of the source.
type compiler struct {
	args func(o *Options, hook bool) []string
	text func(source string, hook bool) string
	// faultPattern matches the line and the message in the command's output; nil: the whole output
	// is the message.
	faultPattern *regexp.Regexp
}

func verbatim(source string, _ bool) string { return source }

var compilers = map[string]compiler{
	job.Shell: {
		args:         func(*Options, bool) []string { return []string{"sh", "-n"} },
		text:         func(source string, _ bool) string { s, _, _ := strings.Cut(source, "\x00"); return s + "\n" },
		faultPattern: regexp.MustCompile(`(?m)^[^:\n]*: (?:line )?(?P<line>\d+): (?P<text>.*)$`),
	},
	job.Node: {
		args: func(o *Options, _ bool) []string {
			return []string{"node", fmt.Sprintf("--max-old-space-size=%d", max(o.MaxMemory>>20, 1)), "-e", nodeCheck}
		},
		text: verbatim,
	},
	job.Python: {
		args: func(_ *Options, hook bool) []string {
			return []string{"python3", "-I", "-c", pythonCheck, map[bool]string{true: "hook", false: "job"}[hook]}
		},
		text: verbatim,
	},
	job.PHP: {
		args: func(o *Options, _ bool) []string {
			return []string{"php", "-d", fmt.Sprintf("memory_limit=%d", o.MaxMemory), "-d", "display_errors=stderr", "-d", "log_errors=0", "-d", "html_errors=0", "-l"}
		},
		// Lines are counted from the beginning of the source.
		text: func(source string, hook bool) string {
			source = phpTag.ReplaceAllString(source, "")
			if hook {
				return "<?php " + source
			}
			return "<?php return static function ($payload, $job) {" + source + "\n};"
		},
		faultPattern: regexp.MustCompile(`(?m)^(?:PHP )?(?:Parse|Fatal) error: +(?P<text>.*) in .* on line (?P<line>\d+)$`),
	},
}

var phpTag = regexp.MustCompile(`^\s*<\?php\b`)

const (
	maxChecks      = 4       // maximum number of checks at a time
	maxCheckOutput = 4 << 10 // bytes that are kept of a check's output
)

// ErrCheckBusy means that a source could not be checked, for a reason that may pass.
var ErrCheckBusy = errors.New("the handler could not be checked; try again")

// compile checks the code of a source. Its errors are *CheckError and ErrCheckBusy. It takes at
// most as long as a handler process may take to start.
func (r *Runner) compile(ctx context.Context, s *job.Source) error {
	c, ok := compilers[s.Lang]
	if !ok {
		return nil
	}
	timeoutErr := fmt.Errorf("%w: it took longer than %v", ErrCheckBusy, r.options.StartTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, r.options.StartTimeout, timeoutErr)
	defer cancel()
	select {
	case r.checkSlots <- struct{}{}:
		defer func() { <-r.checkSlots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, part := range []struct {
		name, source string
		hook         bool
	}{{"body", s.Body, false}, {"before", s.Before, true}, {"beforeEach", s.BeforeEach, true}, {"afterEach", s.AfterEach, true}} {
		if part.source == "" {
			continue
		}
		output, ok, err := r.check(ctx, c, part.source, part.hook)
		switch {
		case errors.Is(err, unix.ENOENT):
			return &CheckError{"invalid_lang", "lang", fmt.Sprintf("lang %q is on, but its interpreter is not on this host: %v", s.Lang, err)}
		case err != nil:
			return err
		case !ok:
			return &CheckError{"invalid_value", part.name, fmt.Sprintf("%s has a syntax error: %s", part.name, c.explain(output))}
		}
	}
	return nil
}

// check runs the compiler on a source, and returns the output and whether the source compiles.
func (r *Runner) check(ctx context.Context, c compiler, source string, hook bool) (output string, ok bool, err error) {
	out := &launch.Capture{Limit: maxCheckOutput}
	limits := []launch.Limit{{Resource: unix.RLIMIT_CORE, Max: 0}, {Resource: unix.RLIMIT_FSIZE, Max: 0}, {Resource: unix.RLIMIT_CPU, Max: uint64(r.options.StartTimeout/time.Second) + 1}}
	p, err := launch.Start(launch.Command{
		Args: c.args(&r.options, hook), Dir: "/", Env: []string{"PATH=" + r.options.Path, "HOME=/", "LANG=C.UTF-8"},
		Stdin: []byte(c.text(source, hook)), Stderr: out, Guard: r.options.Guard, User: r.pool.user, Limits: limits,
	})
	if launch.IsTemporary(err) {
		err = fmt.Errorf("%w: %w", ErrCheckBusy, err)
	}
	if err != nil {
		return "", false, err
	}
	p.KillRest()
	select {
	case <-p.Ended():
	case <-ctx.Done():
		p.SignalGroup(unix.SIGKILL)
		<-p.Ended()
		return "", false, context.Cause(ctx)
	}
	output, _ = out.TakeText()
	result := p.Result()
	if result.Signal != 0 {
		output = strings.TrimRight("the compiler ended with "+launch.SignalName(result.Signal)+": "+output, ": \n")
		if result.Signal != unix.SIGSEGV { // it did not crash: the host has no memory, or a limit was reached
			return "", false, fmt.Errorf("%w: %s", ErrCheckBusy, output)
		}
	}
	return output, result.Code == 0 && result.Signal == 0, result.Err
}

// explain turns a compiler's output into "line N: what is wrong".
func (c compiler) explain(output string) string {
	if c.faultPattern != nil {
		if m := c.faultPattern.FindStringSubmatch(output); m != nil {
			return "line " + m[c.faultPattern.SubexpIndex("line")] + ": " + m[c.faultPattern.SubexpIndex("text")]
		}
	}
	return string(bytes.TrimSpace([]byte(output)))
}
