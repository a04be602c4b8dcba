package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/goccy/go-json"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"gloom/broker/admin/api"
	"gloom/cmd/gloom/doors"
	"gloom/cmd/internal/cli"
)

const topLong = `Watch the types of a broker in a table that is redrawn at intervals.

    QUEUED    ready jobs that wait for a worker
    OLDEST    age of the oldest of them
    RUNNING   jobs at workers
    WORKERS   workers that have joined; IDLE: those with room for a job
    IN/S      jobs submitted per second, since the last update
    OUT/S     jobs that ended per second in any way
    P99 WAIT  99 of 100 jobs handed out since the last update had waited less:
              an estimate, from counts by powers of 2

Types that are paused or limited, or have queued jobs and no workers, are
marked. On a terminal, q quits, left and right choose the column to sort by, r
reverses the order, up, down and page keys scroll, / asks for a part of a name
to filter by, and the space bar updates at once. Elsewhere each update prints a
table, or with --json an object:
    {"time":…,"interval_seconds":…,"types":[{"type":…,"queued":…,…}]}
--once measures one interval and ends.

--since 3h shows the last hours instead, up to 24h, and ends: a row for all
types together and one for each of the busiest types, with the jobs submitted
and failed per second, the jobs queued, and the 95th percentile of the wait.`

const topExample = `  gloom top --sort wait
  gloom top --filter mail
  gloom top --once
  gloom top --since 3h --filter mail
  gloom top --json --interval 10s >>load.jsonl`

// maxTypes is the maximum number of types that top reads.
const maxTypes = 10000

func newTop(t *tool) *cobra.Command {
	p := &topCommand{tool: t, sort: "queued"}
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Watch types: queued, running, workers, rates",
		Long:    topLong,
		Example: topExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.reverse = p.reverse != (p.sort != "type") // numbers begin with the largest
			if p.since != 0 {
				return p.printHistory(cmd.Context())
			}
			return p.run()
		},
	}
	f := cmd.Flags()
	f.DurationVar(&p.interval, "interval", 2*time.Second, "time between updates, at least 100ms")
	f.DurationVar(&p.since, "since", 0, "show the last hours, up to 24h, and end")
	f.BoolVar(&p.once, "once", false, "measure one interval, print, and end")
	t.jsonFlag(cmd, "print JSON, one object per line")
	f.Var(cli.ChoiceFlag(&p.sort, "type", "queued", "oldest", "running", "workers", "idle", "in", "out", "wait"), "sort",
		"column to sort by: type, queued, oldest, running, workers, idle, in, out, wait")
	f.StringVar(&p.filter, "filter", "", "only types whose name contains this")
	f.BoolVar(&p.reverse, "reverse", false, "sort the other way round")
	return cmd
}

type topCommand struct {
	*tool
	interval time.Duration
	since    time.Duration
	once     bool
	sort     string
	reverse  bool // descending
	filter   string

	broker *operatorClient
}

func (p *topCommand) run() error {
	if p.interval < 100*time.Millisecond || p.interval > time.Hour {
		return cli.Usagef("--interval %v: must be 100ms … 1h", p.interval)
	}
	p.broker = p.conn.operator()
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	last, err := p.takeSample(ctx)
	if err != nil {
		return err
	}
	if !p.once && !p.json && cli.IsTerminal(p.stdout) {
		return p.runScreen(ctx, last)
	}
	for {
		select {
		case <-time.After(p.interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next, err := p.takeSample(ctx)
		if err != nil {
			return err
		}
		if err := p.print(computeView(last, next)); err != nil || p.once {
			return err
		}
		last = next
	}
}

// sample is the state of the broker at one moment.
type sample struct {
	at       time.Time
	status   doors.Status
	findings *api.Findings
	types    []api.Type
	more     bool // the broker has further types
}

func (p *topCommand) takeSample(ctx context.Context) (*sample, error) {
	s := &sample{at: time.Now()}
	if err := p.broker.call(ctx, "GET", "/v1/status", nil, &s.status); err != nil {
		return nil, err
	}
	findings, err := p.findings(ctx, "")
	if err != nil && !lacksFindings(err) {
		return nil, err
	}
	s.findings = &findings.value
	s.types, s.more, err = listItems[api.Type](ctx, p.broker, "/v1/types", maxTypes)
	return s, err
}

func (p *topCommand) print(v *view) error {
	v = v.filterTypes(p.filter)
	v.sort(p.sort, p.reverse)
	if p.json {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return p.printJSON(data)
	}
	w := bufio.NewWriter(p.stdout)
	if !p.once {
		fmt.Fprintln(w, v.Time.Format(time.DateTime))
	}
	width := cli.TerminalWidth(p.stdout)
	for _, line := range v.table(width, "", tableStyle{}) {
		fmt.Fprintln(w, cli.Truncate(line, width))
	}
	if !p.once {
		fmt.Fprintln(w)
	}
	return outputError(w.Flush())
}

// runScreen redraws the table on the terminal until the user quits.
func (p *topCommand) runScreen(ctx context.Context, last *sample) error {
	text.EnableColors() // always on: the style decides whether colours are used
	s := &screen{topCommand: p, ctx: ctx, last: last, view: computeView(last, last), style: screenStyle(cli.HasColours(p.stdout))}
	opts := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(p.stdout), tea.WithoutSignalHandler()}
	if !cli.IsTerminal(os.Stdin) {
		opts = append(opts, tea.WithInput(nil))
	}
	_, err := tea.NewProgram(s, opts...).Run()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// screen is the full-screen view of top.
type screen struct {
	*topCommand
	ctx            context.Context
	last           *sample
	view           *view
	style          tableStyle
	sampleErr      error // the error of the last sample
	samples        int
	width, height  int
	typingFilter   bool // the filter is being typed
	firstRow, rows int  // the first type shown, and how many there is room for
}

// sampleDue is the message that the n-th sample is to be taken, sampleTaken the result of a sample.
type (
	sampleDue   int
	sampleTaken struct {
		sample *sample
		err    error
	}
)

func (s *screen) Init() tea.Cmd { return s.wait() }

func (s *screen) wait() tea.Cmd {
	s.samples++
	n := sampleDue(s.samples)
	return tea.Tick(s.interval, func(time.Time) tea.Msg { return n })
}

func (s *screen) fetch() tea.Msg {
	x, err := s.takeSample(s.ctx)
	return sampleTaken{x, err}
}

func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.width, s.height = msg.Width, msg.Height
	case sampleDue:
		if msg == sampleDue(s.samples) {
			return s, s.fetch
		}
	case sampleTaken:
		if s.sampleErr = msg.err; msg.err == nil {
			s.view, s.last = computeView(s.last, msg.sample), msg.sample
		}
		return s, s.wait()
	case tea.KeyPressMsg:
		if s.typingFilter {
			s.typeFilter(msg)
			return s, nil
		}
		switch msg.String() {
		case "/":
			s.typingFilter = true
		case "esc":
			s.filter, s.firstRow = "", 0
		case "up", "k":
			s.firstRow--
		case "down", "j":
			s.firstRow++
		case "pgup":
			s.firstRow -= s.rows
		case "pgdown":
			s.firstRow += s.rows
		case "home", "g":
			s.firstRow = 0
		case "end", "G":
			s.firstRow = len(s.view.Types)
		case "q", "Q", "ctrl+c", "ctrl+d":
			return s, tea.Quit
		case "space", "enter":
			s.samples++ // this sample replaces the one that is due
			return s, s.fetch
		case "left", "<", "h":
			s.nextSort(-1)
		case "right", ">", "l":
			s.nextSort(1)
		case "r", "R":
			s.reverse = !s.reverse
		}
	}
	return s, nil
}

// typeFilter handles a key while the user types the filter.
func (s *screen) typeFilter(key tea.KeyPressMsg) {
	switch name := key.String(); name {
	case "enter":
		s.typingFilter = false
	case "esc", "ctrl+c":
		s.typingFilter, s.filter = false, ""
	case "backspace":
		if _, n := utf8.DecodeLastRuneInString(s.filter); n > 0 {
			s.filter = s.filter[:len(s.filter)-n]
		}
	default:
		s.filter += key.Text
	}
	s.firstRow = 0
}

// nextSort sorts by another column.
func (s *screen) nextSort(step int) {
	i := slices.IndexFunc(topColumns, func(c column) bool { return c.sortKey == s.sort })
	s.sort = topColumns[(i+step+len(topColumns))%len(topColumns)].sortKey
	s.reverse = s.sort != "type"
}

func (s *screen) View() tea.View {
	v := tea.NewView(s.content())
	v.AltScreen = true
	return v
}

func (s *screen) content() string {
	if s.height == 0 {
		return "" // the terminal has not reported its size yet
	}
	lines := s.view.summary(s.broker.addr)
	for i := range lines {
		lines[i] = cli.Truncate(lines[i], s.width)
	}
	v := s.view.filterTypes(s.filter)
	v.sort(s.sort, s.reverse)
	s.rows = max(s.height-len(lines)-2, 1)
	s.firstRow = max(0, min(s.firstRow, len(v.Types)-s.rows))
	n := len(v.Types)
	v.Types = v.Types[s.firstRow:min(s.firstRow+s.rows, n)]
	foot := "q quit   ←→ sort by " + s.sort + "   r reverse   / filter   space update"
	if shownTypes := len(v.Types); shownTypes < n {
		foot = fmt.Sprintf("%d–%d of %d types ↑↓   ", s.firstRow+1, s.firstRow+shownTypes, n) + foot
	}
	switch {
	case s.typingFilter:
		foot = "/" + cli.Clean(s.filter) + "▏  enter keeps the filter, esc drops it"
	case s.sampleErr != nil:
		foot = "no update: " + plainText(classify(s.sampleErr))
	case s.filter != "":
		foot = "/" + cli.Clean(s.filter) + " (esc drops it)   " + foot
	}
	lines = append(lines, v.table(s.width, s.sort, s.style)...)
	for len(lines) < s.height-1 {
		lines = append(lines, "")
	}
	return strings.Join(append(lines, cli.Truncate(foot, s.width)), "\n")
}
