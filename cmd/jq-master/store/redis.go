package store

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/rs/zerolog"

	"gloom/cmd/internal/boot"
	"gloom/cmd/jq-master/job"
)

const (
	leaseTerm  = 10 * time.Second
	leaseRenew = 3 * time.Second
	// Redis counts as away if it has not answered within answerTimeout.
	answerTimeout = 3 * time.Second
)

// Options configures a Redis store.
type Options struct {
	// URL is redis://, rediss:// or unix://, with user, password and database.
	URL string
	// Namespace separates several queues in one Redis.
	Namespace string
	// Log gets messages for operators.
	Log zerolog.Logger
}

// Redis is a Store in Redis 7 or later, and a prometheus.Collector.
type Redis struct {
	opt           Options
	client        *redis.Client
	keys          keys
	metrics       metrics
	name          string      // unique name of this store in the lease
	holder        leaseHolder // describes this process in the lease, for people and for masters on this host
	onAway        func(error)
	clock         clock
	warnedOfNoAOF bool // whether there was a warning about a Redis without an append-only file; owned by Acquire and the writer after it
	usable        bool // Redis has been usable at least once; owned by Acquire
	clockSet      bool // the clock was set to a store's time; owned by Acquire
	clockKnown    bool // the clock need not be set again; owned by Acquire

	mu      sync.Mutex // guards the fields below; held only briefly
	queue   []*op
	wake    chan struct{} // wakes the writer; has room for one signal
	awayErr error         // why enqueueing is refused; nil: it is allowed
	term    *term         // the term of the last Acquire; nil before the first
	closed  bool          // Close was called
}

// term lasts from an Acquire until the lease is lost or given back.
type term struct {
	epoch        string
	expiresAt    atomic.Int64  // the end of the lease, by boot.Since
	standbyWaits atomic.Bool   // whether a standby that could serve was waiting at the last renewal
	fence        uint64        // owned by the writer
	ackedSeq     uint64        // the highest seq that Redis has acknowledged; owned by the writer
	undos        []*op         // transitions that remove enqueueings whose outcome is unknown; owned by the writer
	lost         chan struct{} // closed when err is set
	err          error
	once         sync.Once
	stop         chan struct{} // closed to end the writer, which then closes done
	writerDone   chan struct{}
}

// op is a transition on its way to Redis.
type op struct {
	*transition
	keys []string // the script's keys without the lease and seq, which come first
	args []any    // the script's arguments without the text of the lease and the seq, which come first
	done func(answer any, err error)
	// notJoined says that the script may not make other transitions in the same call.
	notJoined bool
	// undo is the transition that undoes an enqueue. It is nil for all others: these are sent
	// again instead.
	undo *op
}

func init() { redis.SetLogger(&logging.VoidLogger{}) } // all errors that matter are returned

// Open returns a store that connects to Redis in Acquire.
func Open(opt Options) (*Redis, error) {
	o, err := redis.ParseURL(opt.URL)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = answerTimeout, answerTimeout, answerTimeout
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1 // the writer decides what may be repeated
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	r := &Redis{
		opt: opt, client: redis.NewClient(o), keys: keysOf(opt.Namespace), metrics: newMetrics(),
		name: uuid.NewString(), holder: selfHolder(), wake: make(chan struct{}, 1),
	}
	r.clock.start(since1970(time.Now()), boot.Since()) // used until the store's time is known
	return r, nil
}

// Durable implements Store.
func (r *Redis) Durable() bool { return true }

// At implements Store.
func (r *Redis) At(uptime time.Duration) int64 { return r.clock.at(uptime) }

// Watch implements Store.
func (r *Redis) Watch(changed func(error)) { r.onAway = changed }

// Lost implements Store. The channel is nil before the first Acquire.
func (r *Redis) Lost() <-chan struct{} {
	if t := r.current(); t != nil {
		return t.lost
	}
	return nil
}

// Err implements Store.
func (r *Redis) Err() error {
	t := r.current()
	if t == nil {
		return nil
	}
	select {
	case <-t.lost:
		return t.err
	default:
		return nil
	}
}

// HoldsLease implements Store.
func (r *Redis) HoldsLease() bool {
	t := r.current()
	return t != nil && int64(boot.Since()) < t.expiresAt.Load()
}

// HasWaitingStandby implements Store.
func (r *Redis) HasWaitingStandby() bool {
	t := r.current()
	return t != nil && t.standbyWaits.Load() && r.HoldsLease()
}

// add queues a transition, or calls its done with an error.
func (r *Redis) add(o *op) {
	r.mu.Lock()
	var err error
	switch t := r.term; {
	case r.closed || t == nil:
		err = ErrClosed
	case t.err != nil:
		err = t.err
	case r.awayErr != nil && o.undo != nil:
		err = r.awayErr
	default:
		r.queue = append(r.queue, o)
	}
	r.mu.Unlock()
	if err != nil {
		o.done(nil, err)
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func ignoreAnswer(f func(error)) func(any, error) { return func(_ any, err error) { f(err) } }

// Enqueue implements Store.
func (r *Redis) Enqueue(jobs []*job.Job, key *Key, answer func([]job.ID, bool, error)) {
	ids := make([]job.ID, len(jobs))
	names := make([]string, 0, len(jobs)+3)
	names = append(names, r.keys.live)
	text, now, until := "", r.At(boot.Since()), int64(0)
	if key != nil {
		names = append(names, r.keys.idempotency(key.Name), r.keys.idems)
		text, until = keyValue(key, jobs), now+key.TTL.Milliseconds()
	}
	for i, j := range jobs {
		ids[i] = j.ID
	}
	names, args := r.addJobs(names, append(make([]any, 0, 5+len(jobs)*18), text, now, until, len(jobs), 0), jobs)
	args[4] = len(args) - 5
	script := enqueueScript
	if len(jobs) == 0 {
		script = knownScript
	}
	o := &op{
		transition: script, keys: names, args: args, notJoined: key != nil,
		undo: &op{transition: undoScript, keys: names, args: args[:1:1], done: func(any, error) {}},
		done: func(reply any, err error) {
			known, _ := reply.(string)
			if err != nil || known == "" {
				answer(ids, false, err)
				return
			}
			first, err := parseKeyValue(key, known)
			answer(first, err == nil, err)
		},
	}
	if key != nil { // an idempotency key that cannot be read is renamed
		storeTime := o.done
		o.done = func(reply any, err error) {
			if err == nil || !strings.Contains(err.Error(), "UNREADABLE ") {
				storeTime(reply, err)
				return
			}
			o.done = storeTime
			r.setAside(names[1], err, func(err error) {
				if err != nil {
					storeTime(nil, err)
					return
				}
				r.add(o)
			})
		}
	}
	r.add(o)
}

// addJobs appends the Redis keys of new jobs to names, and the fields of the jobs to args.
func (r *Redis) addJobs(names []string, args []any, jobs []*job.Job) ([]string, []any) {
	for _, j := range jobs {
		names = append(names, r.keys.job(j.ID))
		at := len(args)
		args = appendChanges(append(args, j.Seq, 0), &defaultJob, j)
		args[at+1] = len(args) - at - 2
	}
	return names, args
}

// setAside renames a key whose value cannot be read, so that the key can be used again.
func (r *Redis) setAside(key string, reason error, f func(error)) {
	name := r.keys.prefix + "unreadable:" + strings.TrimPrefix(key, r.keys.prefix)
	r.noteUnreadable(name, fmt.Errorf("%w; it was renamed to this", reason))
	r.add(&op{transition: setAsideScript, keys: []string{key, name}, done: ignoreAnswer(f)})
}

// noteUnreadable counts a record that cannot be read, and logs its name.
func (r *Redis) noteUnreadable(key string, reason error) {
	r.metrics.unreadable.Inc()
	r.opt.Log.Error().Err(reason).Str("key", key).Msg("a record in Redis cannot be read and is ignored")
}

// Move implements Store.
func (r *Redis) Move(old, j *job.Job, forgetAt, dropAt int64, f func(error)) {
	set, score := "", int64(0) // the set that the job moves to, "" if it stays in its set
	switch {
	case j.State.Ended():
		set, score = "ended", forgetAt
	case old.State.Ended():
		set, score = "live", int64(j.Seq)
	}
	args := append(make([]any, 0, 32), 0, old.State.String(), j.Rev, j.State.String(), j.Attempt, set, score, dropAt)
	args = appendChanges(args, old, j)
	if set != "" {
		args = append(args, "forget", forgetAt, "drop", dropAt)
	}
	args[0] = len(args) - 1
	r.add(&op{
		transition: moveScript, done: ignoreAnswer(f), args: args,
		keys: []string{r.keys.live, r.keys.ended, r.keys.results, r.keys.job(j.ID)},
	})
}

// Fetch implements Store.
func (r *Redis) Fetch(ids []job.ID, f func(error)) {
	r.add(&op{transition: fetchScript, keys: r.jobs(ids, r.keys.results), done: ignoreAnswer(f)})
}

// Forget implements Store.
func (r *Redis) Forget(ids []job.ID, f func(error)) {
	r.add(&op{transition: forgetScript, keys: r.jobs(ids, r.keys.ended, r.keys.results), done: ignoreAnswer(f)})
}

func (r *Redis) jobs(ids []job.ID, before ...string) []string {
	for _, id := range ids {
		before = append(before, r.keys.job(id))
	}
	return before
}

// Close implements Store. It does not give the lease back. The lease expires, or another master on
// this host takes the lease when it sees that this process has ended.
func (r *Redis) Close() error {
	r.mu.Lock()
	r.closed = true
	t := r.term
	r.mu.Unlock()
	if t != nil {
		t.end()
	}
	return r.client.Close()
}
