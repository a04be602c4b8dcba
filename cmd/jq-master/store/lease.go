package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"gloom/cmd/internal/boot"
)

// Acquire implements Store.
func (r *Redis) Acquire(ctx context.Context, canServe func() bool, onWait func(error)) error {
	if t := r.current(); t != nil {
		t.end()
	}
	logged := ""
	wait := newBackoff()
	for {
		t, err := r.tryAcquire(ctx, canServe())
		var unusable unusableError
		switch {
		case errors.As(err, &unusable) && !r.usable:
			return err
		case err == nil:
			return r.beginTerm(t)
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err.Error() != logged {
			logged = err.Error()
			onWait(err)
		}
		pauseFor(ctx.Done(), wait)
	}
}

// unusableError is an error that remains until the version or the settings of Redis change. A
// master that is starting ends because of it; a running master waits.
type unusableError struct{ error }

func (u unusableError) Unwrap() error { return u.error }

// A standby that can serve leaves a note in Redis; other masters heed the note for yieldTime. The
// standby renews the note each time it checks the lease.
const yieldTime = 5 * time.Second

// tryAcquire takes the lease if it is free, or if the process of its holder has ended. A master
// that cannot serve leaves the lease to masters that can.
func (r *Redis) tryAcquire(ctx context.Context, canServe bool) (*term, error) {
	if err := r.check(ctx); err != nil {
		return nil, err
	}
	r.usable = true
	if err := r.load(ctx); err != nil {
		return nil, err
	}
	deadHolder, first := "", int64(0)
	if canServe {
		first = yieldTime.Milliseconds()
	}
	for range 2 {
		requestTime := boot.Since()
		names := []string{r.keys.lease, r.keys.seq, r.keys.epoch, r.keys.standbys, r.keys.clock}
		answer, err := takeScript.Run(ctx, r.client, names,
			uuid.NewString(), r.name, leaseTerm.Milliseconds(), r.holder.String(), deadHolder, first).Slice()
		if err != nil {
			return nil, err
		}
		if len(answer) < 3 {
			return nil, fmt.Errorf("%w: %v", errUnexpectedAnswer, answer)
		}
		outcome, _ := answer[0].(int64)
		lease, _ := answer[1].(string)
		n, _ := answer[2].(int64)
		switch outcome {
		case 2:
			return nil, errors.New("this master cannot reach its broker, and gives way to one that can")
		case 1:
			t := &term{ackedSeq: uint64(n), lost: make(chan struct{}), stop: make(chan struct{}), writerDone: make(chan struct{})}
			var name string
			var end int64
			if _, err := fmt.Sscanf(lease, "%s %s %d %d", &t.epoch, &name, &t.fence, &end); err != nil || name != r.name {
				return nil, fmt.Errorf("%w: lease %q", errUnexpectedAnswer, lease)
			}
			r.metrics.unreadable.Set(0)
			for _, key := range answer[3:] {
				r.noteUnreadable(fmt.Sprint(key), errors.New("it has the wrong type, and was renamed to this"))
			}
			t.expiresAt.Store(int64(requestTime + leaseTerm))
			r.setClock(time.Duration(end)*time.Millisecond-leaseTerm, 0, (requestTime+boot.Since())/2, false)
			r.clockKnown = true
			return t, nil
		}
		if len(answer) != 4 {
			return nil, fmt.Errorf("%w: %v", errUnexpectedAnswer, answer)
		}
		lead, known := answer[3].(int64)
		r.setClock(time.Duration(n)*time.Millisecond, time.Duration(lead)*time.Millisecond, (requestTime+boot.Since())/2, known)
		h, ok := holderOf(lease)
		if !ok { // a later version may have written it, so wait until it expires
			return nil, fmt.Errorf("the lease is %q, which this version of jq-master does not write", lease)
		}
		if !h.hasEnded() {
			return nil, fmt.Errorf("process %d on %s is the master", h.PID, h.host)
		}
		deadHolder = lease
	}
	return nil, errors.New("another master is taking over")
}

// setClock sets the clock to the time of Redis, once. Later calls correct it, also those of a
// standby: if the clock of Redis is set forward, keys and results must not end at a takeover.
// Therefore the clock of a standby is set again when the lead of the active master's clock over
// Redis is known. If the active master's clock is behind Redis, the standby's clock then equals it;
// otherwise the standby's clock shows the time of Redis. A standby that was active before, or has seen
// another active master, may have a clock that is ahead of the active master's: then it is set, too,
// because a takeover would end what that master has begun. The lead is exact to answerTimeout.
func (r *Redis) setClock(storeTime, lead, uptime time.Duration, known bool) {
	ahead := time.Duration(r.clock.at(uptime))*time.Millisecond - storeTime - lead
	if known && r.clockKnown && ahead > answerTimeout {
		r.clock.start(storeTime+lead, uptime)
		return
	}
	if r.clockKnown || r.clockSet && !known {
		r.clock.follow(storeTime, uptime)
		return
	}
	r.clock.start(storeTime+min(lead, 0), uptime)
	r.clockSet, r.clockKnown = true, known
}

// beginTerm starts a term and its writer.
func (r *Redis) beginTerm(t *term) error {
	r.setReachable() // the last term may have ended while Redis was away
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	r.term = t
	go r.write(t)
	return nil
}

func (r *Redis) current() *term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term
}

// holdLease renews the lease and sets its fencing number. The lease then lasts for length; a length
// of 0 gives the lease back.
func (r *Redis) holdLease(ctx context.Context, t *term, fence uint64, length time.Duration) error {
	return againIfReset(func() error { return r.holdOnce(ctx, t, fence, length) })
}

func (r *Redis) holdOnce(ctx context.Context, t *term, fence uint64, length time.Duration) error {
	requestTime := boot.Since()
	now := r.clock.at(requestTime)
	answer, err := holdScript.Run(ctx, r.client, []string{r.keys.lease, r.keys.seq, r.keys.idems, r.keys.standbys, r.keys.clock},
		t.epoch+" "+r.name+" ", t.ackedSeq, fence, length.Milliseconds(), now, now+KeyTTL.Milliseconds()).Int64Slice()
	if err == nil && len(answer) != 2 {
		err = fmt.Errorf("%w: %v", errUnexpectedAnswer, answer)
	}
	if err == nil {
		t.standbyWaits.Store(answer[0] > 0)
		t.expiresAt.Store(int64(requestTime + length))
		r.clock.follow(time.Duration(answer[1])*time.Millisecond, (requestTime+boot.Since())/2)
	}
	return err
}

// renew renews the lease, and checks the settings of Redis again: an operator may have let it evict
// jobs since the start.
func (r *Redis) renew(ctx context.Context, t *term) error {
	if err := r.holdLease(ctx, t, t.fence, leaseTerm); err != nil {
		return err
	}
	return r.check(ctx)
}

// Resign implements Store.
func (r *Redis) Resign(ctx context.Context) error {
	t := r.current()
	if t == nil {
		return nil
	}
	t.end()
	if r.Err() != nil {
		return nil // already lost
	}
	return r.holdLease(ctx, t, t.fence, 0)
}

// check returns an error if Redis is too old or evicts keys. It warns if Redis has no append-only
// file.
func (r *Redis) check(ctx context.Context) error {
	info := map[string]string{}
	for _, section := range []string{"server", "memory", "persistence"} {
		text, err := r.client.Info(ctx, section).Result()
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				info[name] = value
			}
		}
	}
	var major int
	fmt.Sscanf(info["redis_version"], "%d.", &major)
	if major < 7 {
		return unusableError{fmt.Errorf("redis is version %s; 7.0 or later is needed", info["redis_version"])}
	}
	if policy := info["maxmemory_policy"]; policy != "noeviction" {
		return unusableError{fmt.Errorf("maxmemory-policy is %s, which would evict jobs; it must be noeviction", policy)}
	}
	if info["aof_enabled"] == "0" && info["loading"] == "0" && !r.warnedOfNoAOF { // aof_enabled is also 0 while Redis loads the file
		r.warnedOfNoAOF = true
		r.opt.Log.Warn().Msg("redis has no append-only file: when it stops, jobs are lost; set appendonly yes")
	}
	return nil
}

// newBackoff returns the backoff between attempts to reach Redis.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, time.Second
	return b
}

// pauseFor waits for the next backoff, or until stop is closed.
func pauseFor(stop <-chan struct{}, wait *backoff.ExponentialBackOff) {
	timer := time.NewTimer(wait.NextBackOff())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-stop:
	}
}
