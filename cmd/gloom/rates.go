package main

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"strings"
	"time"

	"github.com/goccy/go-json"
	"github.com/jedib0t/go-pretty/v6/table"

	"gloom/broker/admin/api"
	"gloom/cmd/internal/cli"
)

const (
	// maxHistoryTypes is the maximum number of types that are shown besides the sum of all.
	maxHistoryTypes = 12
	// sparklineWidth is the width of a sparkline, in characters.
	sparklineWidth = 24
)

// printHistory prints the broker's history of rates.
func (p *topCommand) printHistory(ctx context.Context) error {
	if p.since < time.Minute || p.since > 24*time.Hour {
		return cli.Usagef("--since %v: must be 1m … 24h", p.since)
	}
	p.broker = p.conn.operator()
	types, _, err := listItems[api.Type](ctx, p.broker, "/v1/types?sort=-out&filter="+url.QueryEscape(p.filter), maxHistoryTypes)
	if err != nil {
		return err
	}
	names := []string{""}
	for i := range types {
		names = append(names, types[i].Type)
	}
	w := cli.NewTable(
		cli.Column{Name: "TYPE", AlignLeft: true, MaxWidth: 24}, cli.Column{Name: "IN/S", AlignLeft: true}, cli.Column{Name: "FAILED/S", AlignLeft: true},
		cli.Column{Name: "QUEUED", AlignLeft: true}, cli.Column{Name: "P95 WAIT", AlignLeft: true},
	)
	for _, name := range names {
		var raw json.RawMessage
		var h api.History
		err := p.broker.call(ctx, "GET", "/v1/history?since="+p.since.String()+"&type="+url.QueryEscape(name), nil, &raw)
		if err == nil {
			err = decode(raw, &h)
		}
		if err != nil {
			return err
		}
		if p.json {
			if err := p.printJSON(fmt.Appendf(nil, `{"type":%s,"history":%s}`, quote(name), raw)); err != nil {
				return err
			}
			continue
		}
		if name == "" {
			name = "all types"
		}
		step := float64(h.StepMS) / 1000
		w.AppendRow(table.Row{cli.Clean(name), sparkline(h.Submitted, func(v float64) string { return formatRate(v / step) }), sparkline(h.Failed, func(v float64) string { return formatRate(v / step) }),
			sparkline(h.Queued, func(v float64) string { return fmt.Sprintf("%.0f", v) }), sparkline(h.WaitP95, func(v float64) string { return formatSpan(v / 1000) })})
	}
	if p.json {
		return nil
	}
	return outputError(cli.PrintTable(p.stdout, func(int) table.Writer { return w }))
}

// formatRate formats a number per second.
func formatRate(v float64) string {
	if v > 0 && v < 10 {
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// sparkline draws values as a small line of characters, followed by the largest value. If there are
// more values than characters, each character shows the largest of several. Unknown values are
// blank.
func sparkline(values []*float64, format func(float64) string) string {
	limit := 0.0
	columns := make([]float64, min(sparklineWidth, len(values)))
	for i := range columns {
		columns[i] = math.NaN()
		for _, v := range values[i*len(values)/len(columns) : (i+1)*len(values)/len(columns)] {
			if v != nil && !(columns[i] >= *v) {
				columns[i] = *v
			}
		}
		if !math.IsNaN(columns[i]) {
			limit = max(limit, columns[i])
		}
	}
	var s strings.Builder
	for _, v := range columns {
		switch {
		case math.IsNaN(v):
			s.WriteByte(' ')
		case limit == 0:
			s.WriteRune('▁')
		default:
			s.WriteRune([]rune("▁▂▃▄▅▆▇█")[int(v/limit*7.99)])
		}
	}
	return s.String() + " " + format(limit)
}
