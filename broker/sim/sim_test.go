package sim

import (
	"flag"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedCount = flag.Uint64("seeds", 0, "how many seeds to run (0: 2000, with -short 300)")
	onlySeed  = flag.Uint64("seed", 0, "run this seed alone; with -v its trace is printed")
	firstSeed = flag.Uint64("from", 1, "the first seed")
	full      = flag.Bool("whole", false, "leave failing runs as long as they are")
	steps     = flag.Int("steps", 0, "commands of each run (0: as the seed says)")
)

// maxFailures is the number of failing seeds after which the test ends.
const maxFailures = 3

func TestSeeds(t *testing.T) {
	opt := Options{Steps: *steps, NoShrink: *full}
	if *onlySeed != 0 {
		if testing.Verbose() {
			opt.Trace = func(line string) { t.Log(line) }
		}
		if f := NewRunner().Run(*onlySeed, opt); f != nil {
			t.Fatal(f)
		}
		return
	}
	n := *seedCount
	if n == 0 {
		n = 2000
		if testing.Short() {
			n = 300
		}
	}
	var (
		next     atomic.Uint64
		failures atomic.Int32
		wg       sync.WaitGroup
		mu       sync.Mutex
		commands int
		returns  int
		peak     int
		profiles = map[string]int{}
	)
	next.Store(*firstSeed)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			x := NewRunner()
			for failures.Load() < maxFailures {
				s := next.Add(1) - 1
				if s >= *firstSeed+n {
					break
				}
				if f := x.Run(s, opt); f != nil {
					failures.Add(1)
					t.Error(f)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			commands += x.Commands
			returns += x.pages.returns
			peak = max(peak, x.pages.peakBytes)
			for name, k := range x.Profiles {
				profiles[name] += k
			}
		})
	}
	wg.Wait()
	var names []string
	for name := range profiles {
		names = append(names, name)
	}
	sort.Strings(names)
	t.Logf("seeds %d to %d, %d commands, kinds %s; up to %d bytes lent, returned %d times",
		*firstSeed, *firstSeed+n-1, commands, strings.Join(names, ", "), peak, returns)
	if failures.Load() == 0 && n >= 2000 {
		if kinds := len(common) + len(special); len(profiles) != kinds {
			t.Errorf("%d kinds of runs of %d were run", len(profiles), kinds)
		}
		if returns == 0 {
			t.Error("no memory was ever given back: the kinds of runs that should test this do not")
		}
	}
}
