package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"gloom/cmd/internal/failpoint"
)

// These limit the transitions, keys and bytes of a round trip, which has at least one transition.
// Even a slow link must be able to carry it within answerTimeout, because otherwise the same round
// would be sent again forever.
const (
	roundOps   = 512
	roundKeys  = 4000
	roundBytes = 4 << 20
)

// write sends the queued transitions until the term ends. Transitions that are queued during a
// round trip go into the next round trip.
func (r *Redis) write(t *term) {
	defer close(t.writerDone)
	renew := time.NewTicker(leaseRenew)
	defer renew.Stop()
	for {
		select {
		case <-t.stop:
			for round := r.nextRound(); len(round) > 0; round = r.nextRound() {
				if unsentOps, err := r.send(t, round); err != nil {
					r.abandon(t, unsentOps, ErrClosed)
					return
				}
			}
			r.finish(t, ErrClosed)
			return
		case <-renew.C:
			if !r.sendAll(t, nil) {
				return
			}
			continue
		case <-r.wake:
		}
		for {
			round := r.nextRound()
			if len(round) == 0 {
				break
			}
			if !r.sendAll(t, round) {
				return
			}
			select {
			case <-renew.C:
				if !r.sendAll(t, nil) {
					return
				}
			default:
			}
		}
	}
}

// nextRound takes the transitions of one round trip from the queue.
func (r *Redis) nextRound() []*op {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, keys, bytes := 0, 0, 0
	for ; n < len(r.queue) && n < roundOps; n++ {
		keys += len(r.queue[n].keys)
		bytes += r.queue[n].size()
		if n > 0 && (keys > roundKeys || bytes > roundBytes) {
			break
		}
	}
	round := r.queue[:n:n]
	r.queue = r.queue[n:]
	if len(r.queue) == 0 {
		r.queue = nil
	}
	return round
}

// size returns the bytes of the values that may be long.
func (o *op) size() (n int) {
	for _, a := range o.args {
		if raw, ok := a.([]byte); ok {
			n += len(raw)
		}
	}
	return n
}

// sendAll sends a round again and again until all its transitions have been answered, however long
// Redis is away. An empty round renews the lease. sendAll reports whether the term continues.
func (r *Redis) sendAll(t *term, round []*op) bool {
	var err error
	if len(round) == 0 {
		err = r.renew(context.Background(), t)
	} else {
		round, err = r.send(t, round)
	}
	wait := newBackoff()
	for attempt := 0; err != nil; attempt++ {
		if k := kindOf(err); k != kindAway {
			r.abandon(t, round, lostError(k, err))
			return false
		}
		// Redis counts as away only if a second attempt, on a new connection, fails, too.
		if attempt > 0 {
			round = r.setAway(t, round, err)
			pauseFor(t.stop, wait)
		}
		select {
		case <-t.stop:
			r.abandon(t, round, ErrClosed)
			return false
		default:
		}
		if round, err = r.recover(t, round); err == nil {
			r.setReachable()
		}
	}
	return true
}

// recover makes sure that commands sent on broken connections can no longer take effect. Then it
// undoes the enqueueings that were refused meanwhile, and sends the rest of the round again.
func (r *Redis) recover(t *term, round []*op) ([]*op, error) {
	t.fence++
	// The timeout is short, because a server that hangs has already cost much time.
	shortCtx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := r.renew(shortCtx, t)
	if err == nil {
		err = againIfReset(func() error { return r.load(context.Background()) })
	}
	if err != nil {
		return round, err
	}
	for len(t.undos) > 0 {
		if t.undos, err = r.send(t, t.undos); err != nil {
			return round, err
		}
	}
	return r.send(t, r.refuseTooLong(shortCtx, round))
}

// againIfReset calls f, and once more if its connection was closed. Redis or a proxy may have closed
// it while it was idle in the pool, which cannot see this with TLS. Pipelines have a pool of their own.
func againIfReset(f func() error) error {
	err := f()
	if isReset(err) {
		err = f()
	}
	return err
}

// refuseTooLong ends the transitions that have a value longer than Redis's proto-max-bulk-len, and
// returns the others. At such a value Redis closes the connection, so it must not be sent again. If
// Redis does not allow CONFIG GET, its limit is unknown, and nothing is refused.
func (r *Redis) refuseTooLong(ctx context.Context, round []*op) []*op {
	if !slices.ContainsFunc(round, (*op).isLong) {
		return round
	}
	config, _ := r.client.ConfigGet(ctx, bulkLimit).Result()
	limit, err := strconv.Atoi(config[bulkLimit])
	if err != nil {
		return round
	}
	return slices.DeleteFunc(round, func(o *op) bool {
		n := o.maxArgBytes()
		if n <= limit {
			return false
		}
		r.metrics.errors.WithLabelValues(kindNames[kindFaulty]).Inc()
		o.done(nil, fmt.Errorf("%w: it has %d bytes, and %s is %d", ErrTooLong, n, bulkLimit, limit))
		return true
	})
}

// bulkLimit is the setting of Redis that limits the length of a value, in bytes.
const bulkLimit = "proto-max-bulk-len"

// minBulk is the lowest proto-max-bulk-len that Redis can be set to.
const minBulk = 1 << 20

// isLong reports whether Redis may be set to refuse a value of the transition.
func (o *op) isLong() bool { return o.maxArgBytes() >= minBulk }

func (o *op) maxArgBytes() (n int) {
	for _, a := range o.args {
		if raw, ok := a.([]byte); ok {
			n = max(n, len(raw))
		}
	}
	return n
}

// load loads the scripts into Redis.
func (r *Redis) load(ctx context.Context) error {
	pipe := r.client.Pipeline()
	for _, s := range scripts {
		pipe.ScriptLoad(ctx, s.text)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// send makes one round trip and delivers the answers. It returns the transitions that must be sent
// again, in order, and the reason.
func (r *Redis) send(t *term, round []*op) (unsentOps []*op, reason error) {
	if len(round) == 0 {
		return nil, nil
	}
	ctx := context.Background()
	lease := fmt.Sprintf("%s %s %d ", t.epoch, r.name, t.fence)
	pipe := r.client.Pipeline()
	runs := joinOps(round)
	answers := make([]*redis.Cmd, len(runs))
	for i, ops := range runs {
		answers[i] = pipe.Do(ctx, r.scriptArgs(ops, lease, t.ackedSeq)...)
	}
	failpoint.Reach("before " + round[0].name)
	start := time.Now()
	roundTrip(ctx, pipe)
	r.metrics.roundTime.Observe(time.Since(start).Seconds())
	r.metrics.roundSize.Observe(float64(len(round)))
	failpoint.Reach("after " + round[0].name)
	for i, ops := range runs {
		answer, err := answers[i].Result()
		var refusals map[int64]error
		if err == nil {
			answer, refusals, err = t.read(answer, ops[0].notJoined)
		}
		for i, o := range ops {
			err := cmp.Or(err, refusals[int64(i+1)])
			if err == nil {
				o.done(answer, nil)
				continue
			}
			if isProtocolError(err) && slices.ContainsFunc(ops, (*op).isLong) {
				err = fmt.Errorf("%w: %s", errUnread, err) // refuseTooLong finds out which of them is too long
			}
			k := kindOf(err)
			r.metrics.errors.WithLabelValues(kindNames[k]).Inc()
			switch k {
			case kindFaulty:
				o.done(nil, fmt.Errorf("redis: %s: %w", o.name, err))
			case kindFull:
				o.done(nil, fmt.Errorf("%w: %w", ErrFull, err))
			case kindAway:
				unsentOps = append(unsentOps, o)
				if reason == nil {
					reason = err
				}
			default:
				unsentOps, reason = append(unsentOps, o), err // the term ends anyway
			}
		}
	}
	return unsentOps, reason
}

// errUnexpectedAnswer is the error for an answer that no script gives. As when no answer arrives, it
// is unknown whether the script has run.
var errUnexpectedAnswer = errors.New("redis: unexpected answer of a script")

// read returns the answer of a script, and the refusals of its transitions. The answer is the seq
// or, if mayBeKey is set, possibly the value of an idempotency key that was used before.
func (t *term) read(answer any, mayBeKey bool) (any, map[int64]error, error) {
	var refusals map[int64]error
	if list, ok := answer.([]any); ok && len(list) > 0 {
		answer, refusals = list[0], errorsByIndex(list[1:])
	}
	switch a := answer.(type) {
	case int64:
		if a < 0 || uint64(a) < t.ackedSeq {
			break
		}
		t.ackedSeq = uint64(a)
		return answer, refusals, nil
	case string:
		if mayBeKey && isKeyValue(a) {
			return answer, refusals, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: %.50q", errUnexpectedAnswer, fmt.Sprint(answer))
}

// roundTrip makes one round trip. Afterwards each command has an answer or an error. If Redis
// refuses the connection itself, as with a wrong password, the client library sets neither; then
// roundTrip sets the error.
func roundTrip(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	if err != nil && !slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		for _, c := range cmds {
			c.SetErr(err)
		}
	}
}

// lostError returns the error that ends a term.
func lostError(k kind, err error) error {
	if k == kindFenced {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// setAway answers the enqueueings of the round and of the queue with ErrAway. The enqueueings of
// the round may have been written, so setAway notes that they must be undone. It returns the rest
// of the round.
func (r *Redis) setAway(t *term, round []*op, reason error) []*op {
	reason = fmt.Errorf("%w: %w", ErrAway, reason)
	r.mu.Lock()
	first := r.awayErr == nil
	r.awayErr = reason
	queue, refused := withoutEnqueueings(r.queue)
	r.queue = queue
	r.mu.Unlock()
	round, sentOps := withoutEnqueueings(round)
	for _, o := range sentOps {
		t.undos = append(t.undos, o.undo)
	}
	if first && r.onAway != nil {
		r.onAway(reason)
	}
	for _, o := range append(sentOps, refused...) {
		o.done(nil, reason)
	}
	return round
}

func (r *Redis) setReachable() {
	r.mu.Lock()
	oldErr := r.awayErr
	r.awayErr = nil
	r.mu.Unlock()
	if oldErr != nil && r.onAway != nil {
		r.onAway(nil)
	}
}

func withoutEnqueueings(ops []*op) (rest, enqueueings []*op) {
	for _, o := range ops {
		if o.undo != nil {
			enqueueings = append(enqueueings, o)
		} else {
			rest = append(rest, o)
		}
	}
	return rest, enqueueings
}

// abandon ends the term: it answers all transitions that were sent or are queued. A fenced master
// cannot undo an enqueue whose outcome is unknown, but it can check whether the jobs exist:
// existing jobs belong to the next master, and no late command of this term can add more.
func (r *Redis) abandon(t *term, round []*op, reason error) {
	if errors.Is(reason, ErrFenced) {
		round = slices.DeleteFunc(round, func(o *op) bool {
			if o.undo == nil {
				return false
			}
			n, err := r.client.Exists(context.Background(), o.keys[len(o.keys)-1]).Result()
			if err != nil || n == 0 {
				return false
			}
			o.done(nil, nil)
			return true
		})
	}
	for _, o := range round {
		o.done(nil, reason)
	}
	r.finish(t, reason)
}

func (r *Redis) finish(t *term, reason error) {
	r.mu.Lock()
	t.err = reason
	queue := r.queue
	r.queue = nil
	r.mu.Unlock()
	if !errors.Is(reason, ErrClosed) {
		close(t.lost)
	}
	for _, o := range queue {
		o.done(nil, reason)
	}
}

// end stops the writer of a term and waits for it.
func (t *term) end() {
	t.once.Do(func() { close(t.stop) })
	<-t.writerDone
}
