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
	seedCount    = flag.Uint64("seeds", 0, "how many seeds to run (0: 2000, with -short 300)")
	onlySeed     = flag.Uint64("seed", 0, "run this seed alone; with -v its trace is printed")
	firstSeed    = flag.Uint64("from", 1, "the first seed")
	keepWhole    = flag.Bool("whole", false, "leave failing runs as long as they are")
	commandCount = flag.Int("steps", 0, "commands of each run (0: as the seed says)")
)

// maxFailures is the number of failing seeds after which the test ends.
const maxFailures = 3

func TestSeeds(t *testing.T) {
	options := Options{Steps: *commandCount, NoShrink: *keepWhole}
	if *onlySeed != 0 {
		if testing.Verbose() {
			options.Trace = func(line string) { t.Log(line) }
		}
		if f := NewRunner().Run(*onlySeed, options); f != nil {
			t.Fatal(f)
		}
		return
	}
	seeds := *seedCount
	if seeds == 0 {
		seeds = 2000
		if testing.Short() {
			seeds = 300
		}
	}
	var (
		nextSeed  atomic.Uint64
		failures  atomic.Int32
		wg        sync.WaitGroup
		mu        sync.Mutex
		commands  int
		returns   int
		peakBytes int
		profiles  = map[string]int{}
	)
	nextSeed.Store(*firstSeed)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			seedRunner := NewRunner()
			for failures.Load() < maxFailures {
				seed := nextSeed.Add(1) - 1
				if seed >= *firstSeed+seeds {
					break
				}
				if f := seedRunner.Run(seed, options); f != nil {
					failures.Add(1)
					t.Error(f)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			commands += seedRunner.Commands
			returns += seedRunner.pages.returns
			peakBytes = max(peakBytes, seedRunner.pages.peakBytes)
			for name, k := range seedRunner.Profiles {
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
		*firstSeed, *firstSeed+seeds-1, commands, strings.Join(names, ", "), peakBytes, returns)
	if failures.Load() == 0 && seeds >= 2000 {
		if kinds := len(common) + len(special); len(profiles) != kinds {
			t.Errorf("%d kinds of runs of %d were run", len(profiles), kinds)
		}
		if returns == 0 {
			t.Error("no memory was ever given back: the kinds of runs that should test this do not")
		}
	}
}
