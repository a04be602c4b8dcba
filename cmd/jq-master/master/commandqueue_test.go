package master

import (
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"gloom/cmd/jq-master/store"
)

// TestCommandQueue: commands of many goroutines are run one at a time, in the order of each
// goroutine. For commands that come after the machine has ended, only the function onGone is called.
func TestCommandQueue(t *testing.T) {
	m := Open(Options{Limits: DefaultLimits(), Store: store.NewMemory(), Log: zerolog.Nop()})
	keepAlive(m)
	mc := m.active.Load().machine
	const goroutines, commands = 8, 500
	var concurrent, commandsLeft atomic.Int32
	var last [goroutines]int
	var callers, done sync.WaitGroup
	done.Add(goroutines * commands * 2)
	for g := range goroutines {
		callers.Go(func() {
			for n := 1; n <= commands; n++ {
				m.queueStep(mc, func() {
					if concurrent.Add(1) != 1 || last[g] != n-1 {
						t.Errorf("command %d of goroutine %d comes after %d, with others at it", n, g, last[g])
					}
					last[g] = n
					concurrent.Add(-1)
					mc.runAfterStep(func() {
						if commandsLeft.Add(1) != 1 {
							t.Error("two goroutines do what is left to do")
						}
						commandsLeft.Add(-1)
						done.Done()
					})
					done.Done()
				})
				if n%10 == 0 && !m.runNow(mc, func() {
					if concurrent.Load() != 0 {
						t.Error("a command is being done meanwhile")
					}
				}) {
					t.Error("the machine has ended")
				}
			}
		})
	}
	callers.Wait()
	done.Wait()
	workersDone := make(chan struct{})
	m.deactivate(mc)
	m.queueCommand(command{mc, func() { t.Error("a machine that has ended did a command") }, func() { close(workersDone) }})
	<-workersDone
	if m.runNow(mc, func() { t.Error("a machine that has ended was held") }) {
		t.Error("it is reported to exist")
	}
}

// TestPanicOfCommandEndsProcess: a panic of a command ends the process, even if the goroutine's caller
// would catch it, as the HTTP server does.
func TestPanicOfCommandEndsProcess(t *testing.T) {
	const variable = "GLOOM_TEST_PANIC"
	ways := map[string]func(*Master, *machine, func()){
		"queued":  (*Master).queueStep,
		"at once": func(m *Master, mc *machine, f func()) { m.runNow(mc, f) },
	}
	if way := ways[os.Getenv(variable)]; way != nil {
		m := Open(Options{Limits: DefaultLimits(), Store: store.NewMemory(), Log: zerolog.Nop()})
		keepAlive(m)
		defer func() { _ = recover() }()
		way(m, m.active.Load().machine, func() { panic("the culprit") })
		return
	}
	for name := range ways {
		cmd := exec.Command(os.Args[0], "-test.run", t.Name())
		cmd.Env = append(os.Environ(), variable+"="+name)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "the culprit") {
			t.Errorf("%s: it ended with %v: %s", name, err, out)
		}
	}
}
