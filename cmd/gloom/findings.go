package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

func newFindings(t *tool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "findings [SUBJECT]",
		Short: "Show what is holding jobs up, or soon will, and how to fix it",
		Long: `Show what is holding jobs up, or soon will: types whose workers are missing or
all busy, limits that hold jobs back or are almost reached, runs that fail,
clients that hang. The most severe findings come first, and each says what to
do. SUBJECT (a type, a group, a client or "broker") selects those about it.

The exit status is 1 if a finding is severe.`,
		Example: `  gloom findings
  gloom findings --json | jq -r '.items[] | .severity + " " + .subject'`,
		Args: atMost("a subject"),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := ""
			if len(args) > 0 {
				query = "&subject=" + url.QueryEscape(args[0])
			}
			findings, err := t.findings(cmd.Context(), query)
			if err != nil {
				return err
			}
			if err := printItem(t, &findings, func(f *api.Findings) string {
				switch {
				case len(f.Items) > 0:
					return describeFindings(f, "")
				case len(args) > 0: // the subject need not exist
					return "no findings about " + cli.QuoteName(args[0]) + "\n"
				}
				return "no findings: everything is healthy\n"
			}); err != nil {
				return err
			}
			return severityError(&findings.value)
		},
	}
	t.jsonFlag(cmd, "print JSON")
	return cmd
}

// findings requests the findings that a query selects; it begins with "&" unless it is empty.
func (t *tool) findings(ctx context.Context, query string) (item listItem[api.Findings], err error) {
	err = t.conn.operator().call(ctx, http.MethodGet, fmt.Sprintf("/v1/findings?limit=%d%s", pageSize, query), nil, &item)
	return item, err
}

// severityError returns exit status 1 if a finding is severe.
func severityError(f *api.Findings) error {
	if slices.ContainsFunc(f.Items, func(x api.Finding) bool { return x.Severity == api.Severe }) {
		return cli.SilentExit(cli.ExitFailed)
	}
	return nil
}

// firstFindings returns the first n findings.
func firstFindings(f *api.Findings, n int) *api.Findings {
	n = min(n, len(f.Items))
	return &api.Findings{Items: f.Items[:n], More: f.More + len(f.Items) - n}
}

// describeFindings describes findings; moreHint is the command that shows the others.
func describeFindings(f *api.Findings, moreHint string) string {
	var b strings.Builder
	for i := range f.Items {
		x := &f.Items[i]
		since := ""
		if at, err := time.Parse(time.RFC3339, x.Since); err == nil {
			since = " (for " + formatSpan(max(0, time.Since(at).Seconds())) + ")"
		}
		fmt.Fprintf(&b, "%s%s\n    %s\n", headline(x), since, cli.Clean(x.Advice))
	}
	if f.More > 0 {
		fmt.Fprintf(&b, "and %s%s\n", cli.Plural(f.More, "more finding"), moreHint)
	}
	return b.String()
}

// headline describes a finding in one line.
func headline(x *api.Finding) string {
	subject := x.Kind + " " + cli.QuoteName(x.Subject)
	switch {
	case x.Kind == x.Subject:
		subject = x.Kind
	case x.Number > 0 && x.Subject != x.Address:
		subject += " at " + peerAddress(&api.Peer{Number: x.Number, Address: x.Address})
	}
	return fmt.Sprintf("%s  %s: %s", strings.ToUpper(x.Severity), subject, cli.Clean(x.Finding))
}

// findingsAbout keeps the findings about the type or a group of a job.
func findingsAbout(f *api.Findings, j *api.Job) *api.Findings {
	return &api.Findings{Items: slices.DeleteFunc(f.Items, func(x api.Finding) bool {
		return !(x.Kind == "type" && x.Subject == j.Type || x.Kind == "group" && slices.Contains(j.Groups, x.Subject))
	})}
}

// lacksFindings reports whether an error comes from a broker that does not know findings.
func lacksFindings(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.Status == http.StatusNotFound
}
