package main

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/goccy/go-json"
	"github.com/spf13/cobra"

	"gloom/cmd/gloom/doors"
	"gloom/cmd/internal/cli"
)

// maxStatusFindings limits the findings that are shown below the broker's figures.
const maxStatusFindings = 10

func newStatus(t *tool) *cobra.Command {
	var allLimits bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show whether the broker is healthy, and how many jobs it has",
		Long: `Show the broker as a whole: its version, peers, the ledger of all jobs since it
started, the limits of which half or more is used, and what keeps jobs from
moving (see gloom findings). --limits shows all limits.

The exit status is 1 if one of the findings is severe.`,
		Example: `  gloom status
  gloom status --json | jq .ledger.queued`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings, err := t.findings(cmd.Context(), "")
			if err != nil && !lacksFindings(err) {
				return err
			}
			err = printOne(cmd.Context(), t, "/v1/status", func(s *doors.Status) string {
				state := "is serving"
				if s.Draining {
					state = "is draining"
				}
				return fmt.Sprintf("%s %s at %s %s, up for %s\n%s%s", cmp.Or(s.Door, "gloomd"), cli.Clean(s.Version), t.conn.operator().addr, state,
					formatSpan(s.UptimeSeconds), fieldTable(describeBroker(s, allLimits)), describeFindings(firstFindings(&findings.value, maxStatusFindings), ": gloom findings"))
			})
			if err != nil {
				return err
			}
			return severityError(&findings.value)
		},
	}
	t.jsonFlag(cmd, "print JSON")
	cmd.Flags().BoolVar(&allLimits, "limits", false, "show all limits")
	return cmd
}

// describePeers counts the connected peers; the submitters of a door are not connected.
func describePeers(s *doors.Status) string {
	if s.Door != "" {
		return cli.Plural(s.Workers, "worker")
	}
	return cli.Plural(s.Workers, "worker") + ", " + cli.Plural(s.Submitters, "submitter")
}

func describeBroker(s *doors.Status, allLimits bool) []field {
	g := s.Ledger
	n := func(v uint64) string { return humanize.Comma(int64(v)) }
	f := []field{
		{"peers", describePeers(s) + ", " + cli.Plural(s.Types, "type")},
		{"jobs", n(g.Submitted) + " submitted"},
		{"  waiting", n(g.Queued) + " queued, " + n(g.Delayed) + " delayed"},
		{"  running", n(g.Running)},
		{"  ended", fmt.Sprintf("%s answered, %s failed, %s cancelled, %s expired, %s discarded",
			n(g.Answered), n(g.Failed), n(g.Cancelled), n(g.Expired), n(g.Discarded))},
	}
	dead := map[bool]string{true: "dead letters", false: "failed, kept"}[s.Door == ""] // doors have no dead letters
	if s.Door == "" || s.Dead > 0 {
		f = append(f, field{dead, humanize.Comma(int64(s.Dead))})
	}
	if s.Door == "" || s.StoreBytes > 0 {
		f = append(f, field{"memory for jobs", formatBytes(s.StoreBytes)})
	}
	if s.Imbalance != 0 {
		f = append(f, field{"IMBALANCE", fmt.Sprintf("%d: a bug in %s, please report it", s.Imbalance, cmp.Or(s.Door, "the broker"))})
	}
	return append(f, describeLimits(s, allLimits)...)
}

// describeLimits describes the limits of which at least half is used, or all.
func describeLimits(s *doors.Status, all bool) []field {
	used := map[string]int64{
		"max_jobs":   int64(s.Ledger.Queued + s.Ledger.Delayed + s.Ledger.Running),
		"max_bytes":  s.StoreBytes,
		"max_types":  int64(s.Types),
		"dead_bytes": s.DeadBytes,
	}
	var f []field
	for _, name := range slices.Sorted(maps.Keys(s.Limits)) {
		limit := s.Limits[name]
		text := humanize.Comma(limit)
		switch {
		case limit == 0:
			text = "none"
		case slices.ContainsFunc([]string{"bytes", "bound", "frame", "history", "memory", "unread"}, func(end string) bool { return strings.HasSuffix(name, end) }):
			text = formatBytes(limit)
		}
		high := limit > 0 && used[name] >= limit-limit/2
		if high {
			text += fmt.Sprintf(" (%d%% used)", int(100*float64(used[name])/float64(limit)))
		}
		if high || all {
			f = append(f, field{strings.ReplaceAll(name, "_", "-"), text})
		}
	}
	return f
}

// version is what gloom version --json prints.
type version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func newVersion(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: `  gloom version --json`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v := listItem[version]{value: version{cli.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}}
			var err error
			if v.raw, err = json.Marshal(v.value); err != nil {
				return err
			}
			return printItem(t, &v, func(v *version) string {
				return fmt.Sprintf("gloom %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
			})
		},
	}
	t.jsonFlag(cmd, "print JSON")
	return cmd
}
