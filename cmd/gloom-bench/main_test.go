package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gloom/bench/brokers"
	"gloom/bench/result"
	"gloom/bench/throwaway"
	"gloom/cmd/internal/cli"
)

// asProgram is the variable that makes the test binary run the program. Tests start the relay with
// this variable.
const asProgram = "GLOOM_BENCH_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(throwaway.Main(&scratch, func() (int, error) { return m.Run(), nil }))
}

// gloomd is built once for all tests, into scratch.
var scratch, gloomd string

func bench(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asProgram+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// run expects the program to succeed and returns the results that it wrote.
func run(t *testing.T, args ...string) *result.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "r.json")
	stdout, stderr, err := bench(t, append(args, "--out", path)...)
	if err != nil {
		t.Fatalf("%q: %v\n%s%s", args, err, stdout, stderr)
	}
	f, err := result.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func needGloomd(t *testing.T) string {
	t.Helper()
	if gloomd == "" {
		var err error
		if gloomd, err = throwaway.Build(scratch, "gloomd", false); err != nil {
			t.Fatal(err)
		}
	}
	return gloomd
}

// Every shape, in small, runs against gloomd and reports its figures.
func TestShapesOnGloomd(t *testing.T) {
	short := []string{"--duration=300ms", "--warmup=50ms"}
	for _, c := range []struct {
		shape string
		flags []string
		check func(t *testing.T, p *result.Params, r *result.Round)
	}{
		{"throughput", []string{"--jobs=5000", "--types=4", "--priorities=3", "--body=300"}, func(t *testing.T, _ *result.Params, r *result.Round) {
			if r.Jobs != 5000 || r.Latency.Count != 5000 {
				t.Errorf("%d jobs, %d latencies", r.Jobs, r.Latency.Count)
			}
		}},
		{"throughput", []string{"--jobs=5000", "--types=64", "--versatile", "--workers=2", "--groups=7"}, func(t *testing.T, p *result.Params, r *result.Round) {
			if r.Jobs != 5000 || p.Types != 64 || !p.Versatile || p.Groups != 7 {
				t.Errorf("%d jobs of %+v", r.Jobs, p)
			}
		}},
		{"throughput", append(short, "--work-time=1ms", "--one-cpu", "--generator-loops=2"), func(t *testing.T, _ *result.Params, r *result.Round) {
			if minTime := time.Millisecond; time.Duration(r.Latency.P50) < minTime {
				t.Errorf("p50 %v, work alone takes %v", time.Duration(r.Latency.P50), minTime)
			}
		}},
		// The round is long enough that a stall of the machine matters little.
		{"latency", []string{"--duration=3s", "--warmup=200ms", "--rate=2000", "--arrivals=poisson"}, func(t *testing.T, _ *result.Params, r *result.Round) {
			if rate := float64(r.Jobs) / r.Seconds; rate < 1500 || rate > 2500 {
				t.Errorf("%.0f jobs/s, wanted 2000", rate)
			}
		}},
		{"backlog", []string{"--jobs=20000"}, func(t *testing.T, _ *result.Params, r *result.Round) {
			if b := r.Backlog; r.Jobs != 20000 || b.FillSeconds <= 0 || b.RSSFull-b.RSSEmpty < 20000*100 {
				t.Errorf("%d jobs, backlog %+v: bodies alone are 2 MB", r.Jobs, *b)
			}
		}},
		{"churn", append(short, "--worker-ends=100", "--submitter-ends=20"), func(t *testing.T, _ *result.Params, r *result.Round) {
			if r.WorkerHangups == 0 {
				t.Error("no worker hung up")
			}
		}},
		{"soak", append(short, "--interval=200ms", "--submitters=10", "--steady-submitters=5", "--workers=20"),
			func(t *testing.T, _ *result.Params, r *result.Round) {
				if len(r.Samples) == 0 || r.Samples[0].Jobs == 0 || r.Samples[0].Descriptors == 0 {
					t.Errorf("samples %+v", r.Samples)
				}
			}},
		{"fanout", append(short, "--idle-workers=500", "--types=20", "--workers=20", "--rate=1000"),
			func(t *testing.T, _ *result.Params, r *result.Round) {
				if r.Idle == nil || r.Idle.Workers != 500 || r.Idle.RSSAfter <= r.Idle.RSSBefore {
					t.Errorf("idle %+v", r.Idle)
				}
			}},
		{"stall", []string{"--jobs=20000", "--duration=100ms", "--warmup=50ms"}, func(t *testing.T, _ *result.Params, r *result.Round) {
			var names []string
			for _, s := range r.Samples {
				names = append(names, s.Name)
				if s.Jobs == 0 || s.Max == 0 {
					t.Errorf("sample %+v", s)
				}
			}
			for _, want := range []string{"20000 jobs", "vanishes", "scraped", "16 MiB"} {
				if !strings.Contains(strings.Join(names, ","), want) {
					t.Errorf("no sample for %q in %q", want, names)
				}
			}
		}},
		{"throughput", []string{"--jobs=5000", "--unix"}, func(t *testing.T, p *result.Params, r *result.Round) {
			if !p.Unix || r.Jobs != 5000 {
				t.Errorf("%d jobs of %+v", r.Jobs, p)
			}
		}},
		{"prefetch", []string{"--jobs=5000"}, func(t *testing.T, p *result.Params, r *result.Round) {
			if p.Prefetch != 64 || r.Jobs != 5000 {
				t.Errorf("prefetch %d, %d jobs", p.Prefetch, r.Jobs)
			}
		}},
	} {
		t.Run(c.shape, func(t *testing.T) {
			f := run(t, append([]string{c.shape, "--rounds=1", "--gloomd", needGloomd(t)}, c.flags...)...)
			r := f.Runs[0].Rounds[0]
			if r.ServerCPU <= 0 || r.Server.RSS <= 0 || r.GeneratorCPU <= 0 || r.BytesIn <= 0 || r.Jobs <= 0 {
				t.Errorf("figures are missing: %+v", r)
			}
			c.check(t, &f.Runs[0].Params, r)
		})
	}
}

// A small race of all kinds: every server answers every job that it should.
func TestRaceOfAllKinds(t *testing.T) {
	f := run(t, "race", "--small", "--rounds=1", "--duration=100ms", "--backlog=2000", "--gloomd", needGloomd(t))
	skipped := map[string]bool{"backlog nats": true, "prefetch relay": true, "prefetch bare": true, "prefetch redis": true, "prefetch gearmand": true,
		"prefetch gearmand-t1": true, "prefetch beanstalkd": true, "unix sockets nats": true, "unix sockets redis": true, "unix sockets gearmand": true,
		"unix sockets gearmand-t1": true, "unix sockets beanstalkd": true}
	for _, r := range f.Runs {
		name := r.Shape + " " + r.Server.Kind
		if (r.Skipped != "") != skipped[name] {
			t.Errorf("%s: skipped %q", name, r.Skipped)
		}
		if r.Skipped == "" && (len(r.Rounds) != 1 || r.Rounds[0].Jobs == 0) {
			t.Errorf("%s: %d rounds", name, len(r.Rounds))
		}
	}
	if want := 5 * len(brokers.Kinds()); len(f.Runs) != want {
		t.Errorf("%d runs, want %d", len(f.Runs), want)
	}
}

func TestSweepAndReport(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.json")
	if out, errs, err := bench(t, "sweep", "--over=body", "--values=16,4096", "--jobs=500", "--rounds=1", "--servers=relay", "-o", a); err != nil {
		t.Fatalf("%v\n%s%s", err, out, errs)
	}
	out, errs, err := bench(t, "report", "--format=markdown", "--plots", dir, a)
	if err != nil || !strings.Contains(out, "| 4,096 |") || !strings.Contains(errs, "jobs-s-over-body.svg") {
		t.Errorf("report: %v\n%s%s", err, out, errs)
	}
	out, errs, err = bench(t, "report", "--format=benchmark", a)
	if err != nil || strings.Count(out, "BenchmarkBody/body=16/server=relay") != 1 {
		t.Errorf("report: %v\n%s%s", err, out, errs)
	}
}

// If a server loses jobs, the program ends with status 1, and the report says so.
func TestFaultsExitWithOne(t *testing.T) {
	addr := silentServer(t)
	out, errs, err := bench(t, "throughput", "--server", addr+","+addr, "--jobs=10", "--rounds=1", "--grace=50ms", "--within=300ms")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, "10 lost") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

// silentServer lets workers join and submitters submit, and does nothing else.
func silentServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Write([]byte("\x00\x00\x00\x0b" + `{"ok":true}`)) // the ok of a join; a submitter that gets it ignores it
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return l.Addr().String()
}

// TestHelpFitsTerminal checks that the help of every command fits a terminal of 80 columns, and
// that the help of gloom-bench puts every command into a group.
func TestHelpFitsTerminal(t *testing.T) {
	names := []string{""}
	for _, c := range newRoot().Commands() {
		names = append(names, c.Name())
	}
	for _, name := range names {
		var out strings.Builder
		cmd := newRoot()
		cmd.SetOut(&out)
		if status := cli.Execute(cmd, append(strings.Fields(name), "--help"), &out); status != 0 {
			t.Errorf("%s --help: exit status %d: %s", name, status, out.String())
		}
		for l := range strings.Lines(out.String()) {
			if utf8.RuneCountInString(strings.TrimRight(l, "\n")) > 80 {
				t.Errorf("%s --help: wider than 80: %s", name, l)
			}
		}
		if strings.Contains(out.String(), "Additional Commands:") {
			t.Errorf("%s --help: commands without a group:\n%s", name, out.String())
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"throughput", "--submitters=0"}, {"throughput", "--types=64"}, {"throughput", "--body=3"}, {"latency", "--rate=0"},
		{"throughput", "--rounds=0"}, {"throughput", "--server=rabbit"}, {"throughput", "--format=html"},
		{"backlog", "--jobs=0"}, {"race", "--servers=gloomd,gloomd"}, {"sweep", "--over=luck", "--values=1,2"},
		{"sweep", "--over=body", "--values=100"}, {"compare", "/does/not/exist", "/nor/this"}, {"throughput", "--server=redis", "--prefetch=3"},
		{"throughput", "--server=redis", "--unix"}, {"throughput", "--server=redis", "--groups=3"}, {"throughput", "--versatile", "--types=100001"},
	} {
		if _, errs, err := bench(t, args...); err == nil || !strings.HasPrefix(errs, "gloom-bench: ") {
			t.Errorf("%q: %v, %q", args, err, errs)
		}
	}
}
