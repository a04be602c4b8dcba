package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestDashboardAndAlertsUseMetrics: the dashboard and the alerts use only metrics that a master
// has, promtool accepts the alerts, and their tests pass.
func TestDashboardAndAlertsUseMetrics(t *testing.T) {
	t.Parallel()
	c := start(t).client(t, jsonType)
	c.do("PUT", "/v1/constraints/one", `{"match":{},"rate":1}`).wantStatus(201)
	names := map[string]bool{}
	eventually(t, "a request is counted", func() bool {
		text := c.do("GET", "/metrics", "").wantStatus(200).text
		for _, m := range regexp.MustCompile(`(?m)^(gloom_[a-z_]+)[{ ]`).FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
		return names["gloom_jq_http_requests_total"]
	})
	read := func(file string) []byte {
		data, err := os.ReadFile("deploy/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(read("dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	exprsByFile := map[string][]string{}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			exprsByFile["dashboard.json"] = append(exprsByFile["dashboard.json"], q.Expr)
		}
	}
	for line := range strings.SplitSeq(string(read("alerts.yml")), "\n") {
		if expr, ok := strings.CutPrefix(strings.TrimSpace(line), "expr: "); ok {
			exprsByFile["alerts.yml"] = append(exprsByFile["alerts.yml"], expr)
		}
	}
	metric := regexp.MustCompile(`\bgloom_[a-z_]+\b`)
	for _, file := range []string{"dashboard.json", "alerts.yml"} {
		n := 0
		for _, expr := range exprsByFile[file] {
			for _, name := range metric.FindAllString(expr, -1) {
				if n++; !names[name] {
					t.Errorf("%s asks for %s, which a master does not have: %s", file, name, expr)
				}
			}
		}
		if n < 8 {
			t.Errorf("%s asks for %d metrics", file, n)
		}
	}
	for _, args := range [][]string{{"check", "rules", "deploy/alerts.yml"}, {"test", "rules", "deploy/alerts_test.yml"}} {
		if out, err := exec.Command("promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v (Debian: prometheus; make deps installs it)\n%s", strings.Join(args, " "), err, out)
		}
	}
}
