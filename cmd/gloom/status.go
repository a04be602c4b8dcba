package main

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/goccy/go-json"
	"github.com/spf13/cobra"
)

func newStatus(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the broker as a whole",
		Long: `Show the broker as a whole: version, peers, the ledger of all jobs since it
started, and its limits.`,
		Example: `  gloom status
  gloom status --json | jq .ledger.queued`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return t.status(cmd.Context(), asJSON) },

		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (t *tool) status(ctx context.Context, asJSON bool) error {
	a, err := t.link.api()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := a.do(ctx, http.MethodGet, "/v1/status", nil, &raw); err != nil {
		return err
	}
	if asJSON {
		return t.printJSON(raw)
	}
	var s brokerStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	state := "serves"
	if s.Draining {
		state = "drains"
	}
	fmt.Fprintf(t.out, "gloomd %s at %s %s, up for %s\n", clean(s.Version), a.addr, state, span(s.Uptime))
	_, err = t.out.WriteString(facts(s.facts()))
	return outputError(err)
}

func (s *brokerStatus) facts() []fact {
	g := s.Ledger
	n := func(v uint64) string { return humanize.Comma(int64(v)) }
	f := []fact{
		{"peers", plural(s.Submitters, "submitter") + ", " + plural(s.Workers, "worker") + ", " + plural(s.Types, "type")},
		{"jobs", n(g.Submitted) + " submitted"},
		{"  waiting", n(g.Queued) + " queued, " + n(g.Delayed) + " delayed"},
		{"  running", n(g.Running)},
		{"  ended", fmt.Sprintf("%s answered, %s failed, %s cancelled, %s expired, %s discarded",
			n(g.Answered), n(g.Failed), n(g.Cancelled), n(g.Expired), n(g.Discarded))},
		{"failed, kept", plural(s.Dead, "job")},
		{"job store", bytesOf(s.StoreBytes)},
	}
	if s.Imbalance != 0 {
		f = append(f, fact{"IMBALANCE", fmt.Sprintf("%d: a bug of the broker, please report it", s.Imbalance)})
	}
	var names []string
	for name := range s.Limits {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := s.Limits[name]
		shown := humanize.Comma(v)
		switch {
		case v == 0:
			shown = "none"
		case strings.HasSuffix(name, "bytes"), strings.HasSuffix(name, "bound"), strings.HasSuffix(name, "frame"):
			shown = bytesOf(v)
		}
		f = append(f, fact{strings.ReplaceAll(name, "_", "-"), shown})
	}
	return f
}

func newVersion(t *tool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: `  gloom version --json`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
			if asJSON {
				data, err := json.Marshal(v)
				if err != nil {
					return err
				}
				return t.printJSON(data)
			}
			_, err := fmt.Fprintf(t.out, "gloom %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
			return outputError(err)
		},
		DisableFlagsInUseLine: true,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
