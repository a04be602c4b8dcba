// Package deploy has the files that install and watch a broker; its tests compare these
// files with the real broker.
package deploy

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.yaml.in/yaml/v3"

	"gloom/broker"
	"gloom/broker/admin"
	"gloom/broker/server"
	"gloom/broker/settings"
)

// metricNames returns the names of all metrics of a broker that has run a job.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	opt.Fleet.Servers = "nats://127.0.0.1:1" // no server is there, but the metrics of the fleet exist
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	srv.ServeHTTP(admin.New(srv, zerolog.Nop()))
	srv.Hub().Do(func(b *broker.Broker, now int64) []broker.Effect {
		b.Submit(now, b.AddSubmitter(), &broker.Submission{ID: []byte("a"), Type: []byte("t"), Body: []byte("1")})
		return nil
	})
	resp, err := http.Get("http://" + srv.HTTPAddr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z_:]+)[{ ]`).FindAllStringSubmatch(string(data), -1) {
		names[m[1]] = true
	}
	if !names["gloom_jobs_submitted_total"] {
		t.Fatalf("the broker shows no metrics:\n%s", data)
	}
	return names
}

var metricPattern = regexp.MustCompile(`\b(gloom|process|go)_[a-z_]+\b`)

func checkMetricsKnown(t *testing.T, names map[string]bool, source, expr string) int {
	t.Helper()
	found := metricPattern.FindAllString(expr, -1)
	for _, m := range found {
		if !names[m] {
			t.Errorf("%s asks for %s, which the broker does not have: %s", source, m, expr)
		}
	}
	return len(found)
}

// TestDashboardQueriesMetrics: every query of the dashboard asks for metrics that exist.
func TestDashboardQueriesMetrics(t *testing.T) {
	data, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	names := metricNames(t)
	n := 0
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			n += checkMetricsKnown(t, names, "panel "+p.Title, q.Expr)
		}
	}
	if n < 10 {
		t.Errorf("the dashboard asks for %d metrics", n)
	}
}

// TestOperatingListsMetrics: OPERATING.md lists the broker's metrics.
func TestOperatingListsMetrics(t *testing.T) {
	data, err := os.ReadFile("../../../broker/admin/OPERATING.md")
	if err != nil {
		t.Fatal(err)
	}
	names := metricNames(t)
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`(gloom_[a-z_]+)").FindAllStringSubmatch(string(data), -1) {
		if documented[m[1]] = true; !names[m[1]] && !names[m[1]+"_count"] {
			t.Errorf("OPERATING.md names %s, which the broker does not have", m[1])
		}
	}
	for name := range names {
		base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
		if strings.HasPrefix(name, "gloom_") && !documented[name] && !documented[base] {
			t.Errorf("OPERATING.md does not name %s", name)
		}
	}
}

// TestComposeFilesUseOptions: the settings in the compose files are options of the programs that
// they start, and jobd accepts its files.
func TestComposeFilesUseOptions(t *testing.T) {
	help := map[string]string{}
	for _, name := range []string{"gloomd", "serverlessd", "jq-master"} {
		help[name] = runCommand(t, nil, "go", "run", "../../"+name, "--help")
	}
	help["gloom"] = runCommand(t, nil, "go", "run", "../../gloom", "help", "flags")
	n := 0
	for _, name := range []string{"compose.yaml", "compose.fleet.yaml", "compose.whole.yaml", "whole/jq-master.yaml"} {
		data, err := os.ReadFile("compose/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`GLOOM_([A-Z_]+):`).FindAllStringSubmatch(string(data), -1) {
			n++
			program, option := "gloomd", m[1]
			if rest, ok := strings.CutPrefix(option, "SQ_"); ok {
				program, option = "serverlessd", rest
			} else if rest, ok := strings.CutPrefix(option, "JQ_"); ok {
				program, option = "jq-master", rest
			} else if strings.Contains(help["gloom"], "(GLOOM_"+option+")") {
				program = "gloom"
			}
			if flag := "--" + strings.ReplaceAll(strings.ToLower(option), "_", "-") + " "; !strings.Contains(help[program], flag) {
				t.Errorf("%s sets %s, and %s has no %s", name, m[0], program, flag)
			}
		}
	}
	if n == 0 {
		t.Error("they set nothing")
	}
	data, err := os.ReadFile("compose/compose.whole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Configs map[string]struct{ Content string }
	}
	if err := yaml.Unmarshal(data, &compose); err != nil || len(compose.Configs) != 2 {
		t.Fatal(err, compose)
	}
	for program, c := range compose.Configs {
		if !strings.Contains(c.Content, "\npassword = ") {
			t.Errorf("%s serves only its own host: it has no password", program)
		}
		file := t.TempDir() + "/conf"
		if err := os.WriteFile(file, []byte(c.Content), 0o600); err != nil {
			t.Fatal(err)
		}
		if out := runCommand(t, nil, "go", "run", "../../"+program, "--check", "--config", file); !strings.Contains(out, "no errors") {
			t.Errorf("%s: %s", program, out)
		}
	}
}

// TestAlertsFireOnlyWhenDue: every rule asks for metrics that exist, promtool accepts the file, and
// each alert fires only when its condition holds.
func TestAlertsFireOnlyWhenDue(t *testing.T) {
	data, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	names := metricNames(t)
	n := 0
	for _, line := range strings.Split(string(data), "\n") {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			checkMetricsKnown(t, names, "a rule", expr)
			n++
		}
	}
	if n == 0 {
		t.Error("no rules")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v (Debian: prometheus; make deps installs it)\n%s", strings.Join(args, " "), err, out)
		}
	}
}
