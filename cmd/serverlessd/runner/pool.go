package runner

import (
	"context"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"gloom/cmd/internal/launch"
)

// pool keeps idle handler processes, and limits how many processes there are.
type pool struct {
	runner *Runner
	user   *syscall.Credential // the user that processes run as; nil: the daemon's

	mu        sync.Mutex        // guards the following
	available sync.Cond         // signals that count went down or idle went up
	count     int               // how many processes there are; an ending process counts until it is gone
	ending    int               // how many processes are ending
	idle      []*handlerProcess // the idle processes, the most recently used at the end
	processes map[*handlerProcess]bool
	serial    uint64
	closed    bool // no process is begun or kept
}

func newPool(r *Runner, user *syscall.Credential) *pool {
	p := &pool{runner: r, user: user, processes: make(map[*handlerProcess]bool)}
	p.available.L = &p.mu
	return p
}

// The memory of processes is checked at intervals of memoryShare times the duration of the last
// check, within these bounds, because a check reads a file for each process of this host.
const (
	memoryShare    = 50
	memoryPause    = 250 * time.Millisecond
	memoryPauseMax = 2 * time.Second
)

// watch kills processes that use too much memory, until the pool is closed.
func (p *pool) watch() {
	for wait := memoryPause; ; {
		time.Sleep(wait)
		p.mu.Lock()
		processes, closed := slices.Collect(maps.Keys(p.processes)), p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return
		case len(processes) == 0:
			continue
		}
		start := time.Now()
		memoryByGroup := launch.GroupsOverMemory(p.runner.options.MaxMemory)
		wait = min(max(memoryPause, memoryShare*time.Since(start)), memoryPauseMax)
		for _, c := range processes {
			if bytes := memoryByGroup[c.process.Pid()]; bytes > 0 {
				c.excessMemory.Store(bytes)
				c.process.SignalGroup(syscall.SIGKILL)
			}
		}
	}
}

// acquire returns an idle process or a new process. If there are as many processes as allowed, it
// ends the process that has been idle for longest. A fault without a code means that ctx has ended.
func (p *pool) acquire(ctx context.Context, k processKey) (*handlerProcess, *runFault) {
	defer context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.available.Broadcast()
	})()
	p.mu.Lock()
	for {
		if p.closed || ctx.Err() != nil {
			p.mu.Unlock()
			return nil, &runFault{}
		}
		if at := p.find(k); at >= 0 {
			c := p.remove(at)
			if c.process.Running() {
				p.mu.Unlock()
				return c, nil
			}
			p.ending++
			go p.end(c)
			continue
		}
		if p.count < p.runner.options.MaxProcesses {
			break
		}
		if len(p.idle) > 0 && p.ending == 0 {
			p.ending++
			go p.end(p.remove(0))
		}
		p.available.Wait()
	}
	p.count++
	p.serial++
	serial := p.serial
	p.mu.Unlock()
	c, f := p.runner.startProcess(ctx, k, serial)
	p.mu.Lock()
	defer p.mu.Unlock()
	if f != nil {
		p.count--
		p.available.Broadcast()
		return nil, f
	}
	p.processes[c] = true
	return c, nil
}

// find returns the index of the idle process for k that was used last, or -1. Callers hold mu.
func (p *pool) find(k processKey) int {
	for at := len(p.idle) - 1; at >= 0; at-- {
		if p.idle[at].processKey == k {
			return at
		}
	}
	return -1
}

// remove takes the process at this index out of the idle processes. Callers hold mu.
func (p *pool) remove(at int) *handlerProcess {
	c := p.idle[at]
	c.idleTimer.Stop()
	p.idle = slices.Delete(p.idle, at, at+1)
	return c
}

// release takes a process back, or ends it if it must not be used again.
func (p *pool) release(c *handlerProcess) {
	p.mu.Lock()
	if c.unusable || p.closed || c.jobs >= p.runner.options.JobsPerProcess {
		p.ending++
		p.mu.Unlock()
		if c.unusable {
			p.end(c)
		} else {
			go p.end(c)
		}
		return
	}
	c.idleTimer = time.AfterFunc(p.runner.options.IdleTimeout, func() { p.expire(c) })
	p.idle = append(p.idle, c)
	p.available.Broadcast()
	p.mu.Unlock()
}

func (p *pool) expire(c *handlerProcess) {
	p.mu.Lock()
	at := slices.Index(p.idle, c)
	if at >= 0 {
		p.remove(at)
		p.ending++
	}
	p.mu.Unlock()
	if at >= 0 {
		p.end(c)
	}
}

// end ends a process, which the caller has counted as ending. When it is gone, another one may
// begin.
func (p *pool) end(c *handlerProcess) {
	c.finish()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.processes, c)
	p.count--
	p.ending--
	p.available.Broadcast()
}

func (p *pool) hasWarm(k processKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.find(k) >= 0
}

func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// close ends all idle processes. Busy ones are ended when they are put back.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.available.Broadcast()
	idle := p.idle
	p.idle = nil
	p.ending += len(idle)
	p.mu.Unlock()
	for _, c := range idle {
		c.idleTimer.Stop()
		c.unusable = true // so that the process is killed, without time to end by itself
		go p.end(c)
	}
}

// awaitEnd waits until all processes of a closed pool are gone.
func (p *pool) awaitEnd() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.count > 0 {
		p.available.Wait()
	}
}
