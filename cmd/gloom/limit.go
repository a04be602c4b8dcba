package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/broker/rate"
	"gloom/cmd/internal/cli"
)

const limitLong = `Set how many jobs of TYPE may run at a time, and how many may be handed out per
second, minute or hour; --burst is how many of those at once. With --fair the
groups of waiting jobs take turns, instead of the oldest job being next.

--group sets a rule instead: every group whose name matches PATTERN, in which *
stands for any characters, has these limits for itself. --concurrency 0 then
holds its jobs back, and --remove removes the rule.

The value none removes a limit, and a limit that is not given stays. Without any
flag the limits are shown. They last until they are changed or the broker stops.
gloom pause holds back all jobs of a type.`

const limitExample = `  gloom limit mail --concurrency 5 --rate 100/s
  gloom limit report --rate 30/m
  gloom limit mail --concurrency none --rate none
  gloom limit mail --fair
  gloom limit --group 'tenant-*' --concurrency 2 --rate 5/s --burst 10`

func newLimit(t *tool) *cobra.Command {
	l := &limitCommand{tool: t}
	cmd := &cobra.Command{
		Use:     "limit TYPE | --group PATTERN [--concurrency N] [--rate R] [--burst N]",
		Short:   "Set how many jobs of a type or group run, and how fast they start",
		Long:    limitLong,
		Example: limitExample,
		Args: func(cmd *cobra.Command, args []string) error {
			var number limit
			switch {
			case len(args) == 2 && number.parseNumber(args[1]) == nil:
				return cli.Usagef("limit: unexpected argument %q", args[1]).SetHint("did you mean --concurrency %s?", args[1])
			case !cmd.Flags().Changed("group"):
				return exactArgs("a type")(cmd, args)
			case l.group == "":
				return cli.Usagef("--group is empty")
			case len(args) > 0:
				return cli.Usagef("a type and --group cannot be used together")
			}
			return nil
		},
		ValidArgsFunction: t.completeType,
		RunE: func(cmd *cobra.Command, args []string) error {
			l.setFair = cmd.Flags().Changed("fair")
			if l.group != "" {
				return l.runGroup(cmd.Context())
			}
			return l.runType(cmd.Context(), args[0])
		},
	}
	for _, flag := range []string{"-j", "-c", "--jobs"} {
		cli.SetWordHint(cmd, flag, "did you mean --concurrency?")
	}
	f := cmd.Flags()
	f.Var(&textFlag{typ: "number", parse: l.concurrency.parseNumber}, "concurrency", "maximum number of jobs that run at a time, or none; 0 holds a group back")
	f.Var(&textFlag{typ: "rate", parse: l.rate.parseRate}, "rate", "maximum rate of jobs handed out: 100/s, 30/m, 5/h or none")
	f.Var(&textFlag{typ: "number", parse: l.burst.parseNumber}, "burst", "maximum number of jobs handed out at once (a burst), or none")
	f.BoolVar(&l.fair, "fair", false, "groups take turns within the type")
	f.StringVar(&l.group, "group", "", "limit every group that matches this pattern")
	f.BoolVar(&l.remove, "remove", false, "remove the rule of --group")
	return cmd
}

type limitCommand struct {
	*tool
	concurrency, rate, burst limit
	fair                     bool
	setFair                  bool
	group                    string
	remove                   bool
}

func (l *limitCommand) hasLimits() bool { return l.concurrency.isSet || l.rate.isSet || l.burst.isSet }

// apply sets the limits for which flags were given. Without a rate there is no burst, unless a flag
// sets a burst.
func (l *limitCommand) apply(r *api.RuleLimits) {
	if l.concurrency.isSet {
		r.Concurrency = l.concurrency.toInt()
	}
	if l.rate.isSet {
		r.Rate = l.rate.value
	}
	if l.burst.isSet || r.Rate == nil {
		r.Burst = l.burst.toInt()
	}
}

func (l *limitCommand) runType(ctx context.Context, typ string) error {
	if l.remove {
		return cli.Usagef("--remove needs --group")
	}
	switch {
	case l.concurrency.isZero():
		return cli.Usagef("--concurrency 0: must be at least 1 for a type, or none").
			SetHint("%s holds its jobs back; --concurrency none removes the limit", commandLine("pause", typ))
	case l.rate.isZero():
		return cli.Usagef("--rate 0: must be above 0, or none").
			SetHint("%s holds its jobs back; --rate none removes the limit", commandLine("pause", typ))
	case l.burst.isZero():
		return cli.Usagef("--burst 0: must be at least 1, or none")
	}
	o := l.conn.operator()
	path := "/v1/types/" + api.Segment(typ)
	var state api.Type
	err := o.call(ctx, http.MethodGet, path, nil, &state)
	if err != nil && !(httpStatus(err) == http.StatusNotFound && (l.hasLimits() || l.setFair)) {
		return err
	}
	if l.hasLimits() {
		limits := ruleLimits(state.Limits)
		l.apply(&limits)
		in := api.Limits{Concurrency: int(valueOrZero(limits.Concurrency)), Rate: valueOrZero(limits.Rate), Burst: int(valueOrZero(limits.Burst))}
		if err := o.call(ctx, http.MethodPut, path+"/limits", in, &state); err != nil {
			return err
		}
	}
	if l.setFair {
		if err := o.call(ctx, http.MethodPut, path, api.Fair{Fair: l.fair}, &state); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(l.stdout, "%s: %s\n", cli.QuoteName(typ), cmp.Or(rulesOf(&state), "no limits"))
	return outputError(err)
}

func (l *limitCommand) runGroup(ctx context.Context) error {
	switch {
	case l.setFair:
		return cli.Usagef("--fair is for a type, not for a group")
	case l.rate.isZero():
		return cli.Usagef("--rate of a group must be above 0, or none; --concurrency 0 holds its jobs back")
	case l.burst.isZero():
		return cli.Usagef("--burst 0: must be at least 1, or none")
	case l.remove && l.hasLimits():
		return cli.Usagef("--remove and limits cannot be used together")
	}
	o := l.conn.operator()
	path := "/v1/groups/" + api.Segment(l.group)
	if l.remove {
		if err := o.call(ctx, http.MethodDelete, path, nil, nil); err != nil {
			return err
		}
		l.note("groups %s: the rule is gone", cli.QuoteName(l.group))
		return nil
	}
	var rule api.Rule
	err := o.call(ctx, http.MethodGet, path, nil, &rule)
	if err != nil && !(httpStatus(err) == http.StatusNotFound && l.hasLimits()) {
		return err
	}
	if l.hasLimits() {
		if l.apply(&rule.RuleLimits); rule.RuleLimits == (api.RuleLimits{}) {
			return cli.Usagef("none of the limits of groups %s would be left", cli.QuoteName(l.group)).
				SetHint("--remove removes the rule")
		}
		if err := o.call(ctx, http.MethodPut, path, rule.RuleLimits, &rule); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(l.stdout, "groups %s: %s\n", cli.QuoteName(l.group), limitText(rule.RuleLimits))
	return outputError(err)
}

// ruleLimits returns the limits of a type, where 0 is none, in the form of a rule's.
func ruleLimits(l api.Limits) (r api.RuleLimits) {
	if l.Concurrency > 0 {
		r.Concurrency = new(int64(l.Concurrency))
	}
	if l.Rate > 0 {
		r.Rate = &l.Rate
	}
	if l.Burst > 0 {
		r.Burst = new(int64(l.Burst))
	}
	return r
}

// valueOrZero returns what p points to, 0 for nil.
func valueOrZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// limitText describes limits; it returns "" if there are none.
func limitText(r api.RuleLimits) string {
	var s []string
	if r.Concurrency != nil {
		s = append(s, fmt.Sprintf("%d at a time", *r.Concurrency))
	}
	if r.Rate != nil {
		s = append(s, rate.Flag(*r.Rate))
	}
	if r.Burst != nil {
		s = append(s, fmt.Sprintf("%d at once", *r.Burst))
	}
	if s == nil {
		return ""
	}
	return "at most " + strings.Join(s, ", ")
}
