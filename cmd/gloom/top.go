package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/goccy/go-json"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const topLong = `Watch the types of a broker: a table that renews itself.

    QUEUED    ready jobs that wait for a worker
    OLDEST    age of the oldest of them
    RUNNING   jobs at workers
    WORKERS   that have joined; IDLE ones have room for a job
    IN/S      jobs submitted per second, since the last look
    OUT/S     jobs that ended per second, however they did
    P99 WAIT  99 of 100 jobs handed out since the last look had waited less:
              an estimate, from counts by powers of 2

Types that are paused, limited, or without workers for what is queued are
marked. On a terminal, q quits, the arrow keys choose the column to sort by,
r reverses the order, and the space bar looks at once. Elsewhere a table is
printed for each look, or with --json an object:
    {"time":…,"interval_seconds":…,"types":[{"type":…,"queued":…,…}]}
--once looks for one interval and ends.`

const topExample = `  gloom top --sort wait
  gloom top --once
  gloom top --json --interval 10s >>load.jsonl`

// mostTypes is how many types are looked at.
const mostTypes = 10000

func newTop(t *tool) *cobra.Command {
	p := &top{tool: t}
	cmd := &cobra.Command{
		Use:     "top",
		Short:   "Watch types: queued, running, workers, rates",
		Long:    topLong,
		Example: topExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.reverse = p.reverse != (p.sort != "type") // numbers begin with the largest
			return p.run()
		},
		DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.DurationVar(&p.interval, "interval", 2*time.Second, "between looks, at least 100ms")
	f.BoolVar(&p.once, "once", false, "look for one interval, print, and end")
	f.BoolVar(&p.json, "json", false, "print JSON, one object per line")
	f.Var(newChoice(&p.sort, "queued", "type", "oldest", "running", "workers", "idle", "in", "out", "wait"), "sort",
		"column to sort by: type, queued, oldest, running, workers, idle, in, out, wait")
	f.BoolVar(&p.reverse, "reverse", false, "sort the other way round")
	return cmd
}

type top struct {
	*tool
	interval time.Duration
	once     bool
	json     bool
	sort     string
	reverse  bool // descending

	api *api
}

func (p *top) run() error {
	if p.interval < 100*time.Millisecond || p.interval > time.Hour {
		return usage("--interval %v: must be 100ms … 1h", p.interval)
	}
	var err error
	if p.api, err = p.link.api(); err != nil {
		return err
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	last, err := p.look(ctx)
	if err != nil {
		return err
	}
	if !p.once && !p.json && isTerminal(p.out) {
		return p.live(ctx, last)
	}
	for {
		select {
		case <-time.After(p.interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next, err := p.look(ctx)
		if err != nil {
			return err
		}
		if err := p.print(compare(last, next)); err != nil || p.once {
			return err
		}
		last = next
	}
}

// sample is the broker at a moment.
type sample struct {
	at     time.Time
	status brokerStatus
	types  []typeInfo
	more   bool // there are types beyond those
}

func (p *top) look(ctx context.Context) (*sample, error) {
	s := &sample{at: time.Now()}
	if err := p.api.do(ctx, "GET", "/v1/status", nil, &s.status); err != nil {
		return nil, err
	}
	var err error
	s.types, s.more, err = listOf[typeInfo](ctx, p.api, "/v1/types", mostTypes)
	return s, err
}

func (p *top) print(v *view) error {
	v.sort(p.sort, p.reverse)
	if p.json {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return p.printJSON(data)
	}
	w := bufio.NewWriter(p.out)
	if !p.once {
		fmt.Fprintln(w, v.Time.Format(time.DateTime))
	}
	for _, line := range v.table(0, "", plainStyle) {
		fmt.Fprintln(w, line)
	}
	if !p.once {
		fmt.Fprintln(w)
	}
	return outputError(w.Flush())
}

// live renews the table on the terminal until someone quits.
func (p *top) live(ctx context.Context, last *sample) error {
	scr, err := openScreen(p.out)
	if err != nil {
		return err
	}
	defer scr.close()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	v := compare(last, last)
	var trouble error
	for {
		v.sort(p.sort, p.reverse)
		if err := scr.draw(p.frame(v, scr, trouble)); err != nil {
			return outputError(err)
		}
		look := false
		select {
		case <-tick.C:
			look = true
		case <-resized:
		case key := <-scr.keys:
			switch key {
			case keyQuit:
				return nil
			case keyNow:
				look = true
				tick.Reset(p.interval)
			default:
				p.press(key)
			}
		case <-ctx.Done():
			return nil
		}
		if !look {
			continue
		}
		next, err := p.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if trouble = err; err == nil {
			v, last = compare(last, next), next
		}
	}
}

// press acts on a key that changes the order.
func (p *top) press(key int) {
	i := 0
	for n, c := range topColumns {
		if c.sort == p.sort {
			i = n
		}
	}
	switch key {
	case keyLeft:
		i = (i + len(topColumns) - 1) % len(topColumns)
	case keyRight:
		i = (i + 1) % len(topColumns)
	case keyReverse:
		p.reverse = !p.reverse
		return
	default:
		return
	}
	p.sort = topColumns[i].sort
	p.reverse = p.sort != "type"
}

// frame is what the screen shows.
func (p *top) frame(v *view, scr *screen, trouble error) []string {
	width, height := scr.size()
	head := v.summary(p.api.addr)
	rows := v.table(width, p.sort, scr.style)
	foot := "q quit   ←→ sort by " + p.sort + "   r reverse   space look now"
	if trouble != nil {
		var f *fault
		if errors.As(trouble, &f) {
			trouble = f.err
		}
		foot = "no news: " + plain(trouble)
	}
	room := max(height-len(head)-2, 1)
	if len(rows) > room {
		foot = fmt.Sprintf("%d of %d types   ", room-1, len(v.Types)) + foot
		rows = rows[:room]
	}
	for i := range head {
		head[i] = cutTo(head[i], width)
	}
	lines := append(head, rows...)
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	return append(lines, cutTo(foot, width-1))
}

// screen is the terminal while top has it.
type screen struct {
	out   *os.File
	style style
	keys  chan int
	state *term.State // nil: standard input is no terminal
}

// Keys that mean something.
const (
	keyQuit = iota + 1
	keyNow
	keyLeft
	keyRight
	keyReverse
)

func openScreen(out *os.File) (*screen, error) {
	s := &screen{out: out, style: colorStyle, keys: make(chan int)}
	if os.Getenv("NO_COLOR") != "" {
		s.style = monoStyle
	}
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		var err error
		if s.state, err = term.MakeRaw(fd); err != nil {
			return nil, fmt.Errorf("terminal: %w", err)
		}
		go s.read()
	}
	// The other screen, no cursor, no wrapping.
	_, err := out.WriteString("\x1b[?1049h\x1b[?25l\x1b[?7l")
	return s, err
}

func (s *screen) close() {
	_, _ = s.out.WriteString("\x1b[?7h\x1b[?25h\x1b[?1049l")
	if s.state != nil {
		_ = term.Restore(int(os.Stdin.Fd()), s.state)
	}
}

func (s *screen) read() {
	in := bufio.NewReader(os.Stdin)
	for {
		r, _, err := in.ReadRune()
		if err != nil {
			return
		}
		switch r {
		case 'q', 'Q', 3, 4:
			s.keys <- keyQuit
		case ' ', '\r':
			s.keys <- keyNow
		case 'r', 'R':
			s.keys <- keyReverse
		case '<', 'h':
			s.keys <- keyLeft
		case '>', 'l':
			s.keys <- keyRight
		case 0x1b: // arrows: ESC [ D, or ESC O D
			if r, _, err = in.ReadRune(); err != nil || r != '[' && r != 'O' {
				continue
			}
			switch r, _, _ = in.ReadRune(); r {
			case 'D':
				s.keys <- keyLeft
			case 'C':
				s.keys <- keyRight
			}
		}
	}
}

func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// draw replaces what is shown, in one write and without a blink.
func (s *screen) draw(lines []string) error {
	b := []byte("\x1b[H")
	for i, l := range lines {
		if i > 0 {
			b = append(b, "\r\n"...)
		}
		b = append(b, "\x1b[K"...) // first: at the end it would take the last column
		b = append(b, l...)
	}
	_, err := s.out.Write(append(b, "\x1b[J"...))
	return err
}
