package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"

	"gloom/bench/shape"
	"gloom/cmd/internal/cli"
)

// progressLine shows the progress of a run, on a terminal only.
type progressLine struct {
	bar *progressbar.ProgressBar
}

const barSteps = 1000

func newProgressLine(quiet bool) *progressLine {
	if quiet || !cli.IsTerminal(os.Stderr) {
		return &progressLine{}
	}
	return &progressLine{bar: progressbar.NewOptions(barSteps,
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(20),
		progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))}
}

// round returns the function that shows the progress of a round; without a terminal it returns
// nil, so that the generator does not compute the progress.
func (l *progressLine) round(name string) func(shape.Progress) {
	if l.bar == nil {
		return nil
	}
	return func(p shape.Progress) {
		text := name + ", " + p.Phase
		if p.Rate > 0 {
			text += fmt.Sprintf(": %.0f jobs/s", p.Rate)
		}
		if p.P50 > 0 {
			text += fmt.Sprintf(", p50 %v, p99 %v", roundForDisplay(p.P50), roundForDisplay(p.P99))
		}
		l.bar.Describe(text)
		_ = l.bar.Set(int(max(0, min(p.Done, 0.999)) * barSteps))
	}
}

func (l *progressLine) done() {
	if l.bar != nil {
		_ = l.bar.Finish()
	}
}

func roundForDisplay(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return d.Round(time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}
