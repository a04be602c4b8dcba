package master

import (
	"fmt"
	"runtime/debug"
	"sync"
)

// commandQueue is a queue of commands. One goroutine at a time runs the commands and their side
// effects, so that goroutines do not compete for the lock.
type commandQueue struct {
	mu         sync.Mutex // guards the fields below; held only briefly
	queue      []command
	spareQueue []command
	running    bool
}

// command is a function to be run on a machine.
type command struct {
	machine *machine // nil: for any machine
	run     func()   // is called with the master's lock held
	onEnded func()   // is called instead, without the lock, if the machine has ended; may be nil
}

// queueCommand queues a command, which is run soon: by this goroutine, or by the goroutine that is
// running commands.
func (m *Master) queueCommand(o command) {
	m.commands.mu.Lock()
	m.commands.queue = append(m.commands.queue, o)
	first := !m.commands.running
	m.commands.running = true
	m.commands.mu.Unlock()
	if first {
		m.run(maxRounds)
	}
}

// maxRounds is the maximum number of rounds that a goroutine runs after it has queued a command.
const maxRounds = 4

// run runs commands until there are none. After the given number of rounds it continues in another
// goroutine.
func (m *Master) run(rounds int) {
	defer endProcessOnPanic()
	var todo []func()
	for ; ; rounds-- {
		if rounds == 0 { // the caller has other work
			go m.run(1 << 20)
			return
		}
		queue := m.commands.takeAll()
		if len(queue) == 0 {
			return
		}
		m.mu.Lock()
		mc := m.machine
		if mc != nil {
			mc.setTime(m.clock())
		}
		for _, o := range queue {
			switch {
			case o.machine == nil:
			case o.machine == m.machine:
				o.run()
			case o.onEnded != nil:
				m.leftEffects = append(m.leftEffects, o.onEnded)
			}
		}
		todo = append(todo, m.leftEffects...)
		m.leftEffects = nil
		if mc != nil {
			m.setAlarm(mc)
			todo = append(todo, mc.afterStep...)
			clear(mc.afterStep)
			mc.afterStep = mc.afterStep[:0]
		}
		m.mu.Unlock()
		for _, f := range todo {
			f()
		}
		clear(todo)
		if todo = todo[:0]; cap(todo) > 1<<16 {
			todo = nil
		}
		m.commands.giveBack(queue)
	}
}

// endProcessOnPanic ends the process if a command panics: the machine has changed in part, and its
// lock is held. The HTTP server would catch the panic, and the daemon would hang.
func endProcessOnPanic() {
	if fault := recover(); fault != nil {
		text := fmt.Sprintf("%v\n%s", fault, debug.Stack())
		go panic(text)
		select {}
	}
}

// takeAll returns all queued commands. If there are none, the caller must stop running commands.
func (q *commandQueue) takeAll() []command {
	q.mu.Lock()
	defer q.mu.Unlock()
	queue := q.queue
	q.queue, q.spareQueue = q.spareQueue, nil
	q.running = len(queue) > 0
	return queue
}

func (q *commandQueue) giveBack(queue []command) {
	if cap(queue) > 1<<12 {
		return
	}
	clear(queue)
	q.mu.Lock()
	q.spareQueue = queue[:0]
	q.mu.Unlock()
}

// queueStep queues f, which is skipped if the machine has ended.
func (m *Master) queueStep(mc *machine, f func()) { m.queueCommand(command{machine: mc, run: f}) }

// runNow runs f at once and returns true; if the machine has ended, it only returns false.
func (m *Master) runNow(mc *machine, f func()) bool {
	defer endProcessOnPanic()
	m.mu.Lock()
	there := m.machine == mc
	left := false
	if there {
		mc.setTime(m.clock())
		f()
		m.setAlarm(mc)
		left = len(mc.afterStep) > 0
	}
	m.mu.Unlock()
	if left {
		m.queueCommand(command{})
	}
	return there
}
