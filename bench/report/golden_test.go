package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/perf/benchfmt"

	"gloom/bench/result"
)

var update = flag.Bool("update", false, "write what is rendered into testdata, to be reviewed")

func TestMain(m *testing.M) {
	text.DisableColors()
	os.Exit(m.Run())
}

func read(t *testing.T, name string) *result.File {
	t.Helper()
	f, err := result.Read(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Saved results of real runs are rendered as in the golden files.
func TestRenderedReports(t *testing.T) {
	for golden, render := range map[string]func(w io.Writer) error{
		"race.md":  func(w io.Writer) error { Write(w, read(t, "old.json"), Markdown); return nil },
		"race.txt": func(w io.Writer) error { Write(w, read(t, "old.json"), Terminal); return nil },
		"sweep.md": func(w io.Writer) error { Write(w, read(t, "sweep.json"), Markdown); return nil },
		"run.md": func(w io.Writer) error {
			f := read(t, "old.json")
			f.Runs = f.Runs[:1] // like the file of a command that measures one server
			Write(w, f, Markdown)
			return nil
		},
		"race.bench": func(w io.Writer) error { Write(w, read(t, "old.json"), Benchmark); return nil },
	} {
		t.Run(golden, func(t *testing.T) {
			var got bytes.Buffer
			if err := render(&got); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", golden)
			if *update {
				if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got.String()); d != "" {
				t.Errorf("rendered otherwise (run with -update and look at the difference):\n%s", d)
			}
		})
	}
}

func TestFaultsAreShown(t *testing.T) {
	f := read(t, "old.json")
	f.Runs = f.Runs[:1]
	f.Runs[0].Rounds[1].Faults = map[string]int64{"swapped": 3, "lost": 1}
	f.Runs[0].Rounds[1].FaultSamples = []string{"lost: submitter 0: 1 jobs"}
	var got bytes.Buffer
	Write(&got, f, Terminal)
	for _, want := range []string{"round 2: 1 lost, 3 swapped", "lost: submitter 0: 1 jobs"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is not in\n%s", want, got.String())
		}
	}
}

// A file that was written, also of a sweep, is read back unchanged.
func TestBenchmarkFormat(t *testing.T) {
	for _, name := range []string{"old.json", "sweep.json"} {
		f := read(t, name)
		var text bytes.Buffer
		Write(&text, f, Benchmark)
		rounds := 0
		for _, r := range f.Runs {
			rounds += len(r.Rounds)
		}
		in := benchfmt.NewReader(&text, name)
		for in.Scan() {
			switch r := in.Result().(type) {
			case *benchfmt.Result:
				rounds--
				if x, ok := r.Value("server-CPU-sec/job"); !ok && strings.Contains(r.Name.String(), "gloomd") || x < 0 || x > 1 {
					t.Errorf("%s: %v s of CPU a job, %v", r.Name, x, ok)
				}
			case *benchfmt.SyntaxError:
				t.Error(r)
			}
		}
		if rounds != 0 {
			t.Errorf("%s: %d rounds were not written", name, rounds)
		}
	}
}

// Every plot is well-formed and shows every server that was measured.
func TestPlotsShowEveryServer(t *testing.T) {
	for _, c := range []struct {
		file  string
		plots int
		shown map[string][]string // words that a plot must contain, by a part of the plot's name
	}{
		{"old.json", 7, map[string][]string{"throughput-latency": {"gloomd", "relay (ceiling)", "NATS request/reply", "Redis lists"},
			"backlog-jobs-s": {"gloomd"}}},
		{"sweep.json", 8, map[string][]string{"drain-jobs-s-over-backlog": {"gloomd", "relay (ceiling)", "Drain jobs/s"}}},
	} {
		dir := t.TempDir()
		paths, err := Plot(read(t, c.file), dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(paths) != c.plots {
			t.Errorf("%s: %d plots, want %d: %v", c.file, len(paths), c.plots, paths)
		}
		for _, path := range paths {
			words := svgWords(t, path)
			for name, want := range c.shown {
				if !strings.HasSuffix(path, name+".svg") {
					continue
				}
				delete(c.shown, name)
				for _, w := range want {
					if !strings.Contains(words, w) {
						t.Errorf("%s does not show %q", path, w)
					}
				}
			}
		}
		for name := range c.shown {
			t.Errorf("%s: no plot %s", c.file, name)
		}
	}
}

func svgWords(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var words strings.Builder
	d := xml.NewDecoder(f)
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return words.String()
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if c, ok := tok.(xml.CharData); ok {
			words.Write(c)
		}
	}
}
