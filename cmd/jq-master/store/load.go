package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-json"
	"github.com/redis/go-redis/v9"

	"gloom/cmd/internal/boot"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// loadPage is the maximum number of records that are read in one round trip. If jobs are large, fewer
// are read.
const loadPage = 1000

// Load implements Store. A record that cannot be read is counted and logged, and stays in the
// store. A key of the wrong type is renamed, because nothing could be written to it.
func (r *Redis) Load(ctx context.Context, load LoadHandlers) error {
	if err := r.checkTypes(ctx); err != nil {
		return err
	}
	var seq string
	err := r.retryRead(ctx, func() (err error) {
		seq, err = r.client.Get(ctx, r.keys.seq).Result()
		if errors.Is(err, redis.Nil) {
			seq, err = "0", nil
		}
		return err
	})
	if err != nil {
		return err
	}
	last, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return fmt.Errorf("%s: %w", r.keys.seq, err)
	}
	load.Seq(last)
	err = loadHash(ctx, r, r.keys.workers, func(field string, w *job.Worker) error {
		if w.ID.String() != field || w.MaxJobs < 0 || w.MaxJobs > job.MaxWorkerJobs {
			return errors.New("it is not a worker")
		}
		load.Worker(w)
		return nil
	})
	if err != nil {
		return err
	}
	err = loadHash(ctx, r, r.keys.constraints, func(field string, c *job.Constraint) error {
		if fault := pack.Check(c.Match); c.ID != field || fault != nil || !(c.Rate >= 0) || c.Rate > 0 && c.Burst < 1 || c.Concurrency < -1 {
			return errors.New("it is not a constraint")
		}
		return load.Constraint(c)
	})
	if err != nil {
		return err
	}
	if err := loadHash(ctx, r, r.keys.schedules, func(name string, text *json.RawMessage) error { return load.Schedule(name, *text) }); err != nil {
		return err
	}
	if err := r.loadKeys(ctx, load.Key); err != nil {
		return err
	}
	if err := r.loadSet(ctx, r.keys.live, false, load.Job); err != nil {
		return err
	}
	return r.loadSet(ctx, r.keys.ended, true, load.Job)
}

// checkTypes renames keys that have the wrong type.
func (r *Redis) checkTypes(ctx context.Context) error {
	k := &r.keys
	for key, want := range map[string]string{k.live: "zset", k.ended: "zset", k.results: "zset", k.idems: "zset", k.workers: "hash", k.constraints: "hash", k.schedules: "hash", k.standbys: "zset"} {
		var keyType string
		err := r.retryRead(ctx, func() (err error) {
			keyType, err = r.client.Type(ctx, key).Result()
			return err
		})
		if err == nil && keyType != want && keyType != "none" {
			storeTime := make(chan error, 1)
			r.setAside(key, fmt.Errorf("it is a %s, not a %s", keyType, want), func(err error) { storeTime <- err })
			err = <-storeTime
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func loadHash[T any](ctx context.Context, r *Redis, hash string, visit func(field string, v *T) error) error {
	var fields map[string]string
	err := r.retryRead(ctx, func() (err error) {
		fields, err = r.client.HGetAll(ctx, hash).Result()
		return err
	})
	for field, text := range fields {
		v := new(T)
		err := json.Unmarshal([]byte(text), v)
		if err == nil {
			err = visit(field, v)
		}
		if err != nil {
			r.noteUnreadable(hash+" "+field, err)
		}
	}
	return err
}

// loadSet reads the jobs of a sorted set, page by page. Several jobs may have the same score, so a
// page starts at the last score of the page before, and skips the jobs with this score that were
// already read. If a page was large or failed, the next one is half as long, otherwise up to twice
// as long.
func (r *Redis) loadSet(ctx context.Context, set string, ended bool, visit func(*job.Job, int64, int64)) error {
	score, skip := "-inf", int64(0)
	for length := int64(loadPage); ; {
		var members []redis.Z
		var hashes []*redis.SliceCmd
		err := r.retryRead(ctx, func() (err error) {
			byScore := &redis.ZRangeBy{Min: score, Max: "+inf", Offset: skip, Count: length}
			if members, err = r.client.ZRangeByScoreWithScores(ctx, set, byScore).Result(); err == nil {
				hashes, err = r.readHashes(ctx, members)
			}
			if err != nil {
				length = max(1, length/2)
			}
			return err
		})
		if err != nil {
			return err
		}
		last, bytes := int64(len(members)) < length, 0
		for i, m := range members {
			if at := strconv.FormatFloat(m.Score, 'f', -1, 64); at != score {
				score, skip = at, 0
			}
			skip++
			name := m.Member.(string)
			j, forgetAt, dropAt, err := readJob(name, hashes[i])
			switch {
			case err != nil:
			case j.State.Ended() != ended:
				listed, failed := r.isListed(ctx, j)
				if failed != nil {
					return failed
				}
				if listed {
					r.unlist(j, forgetAt, dropAt)
					continue
				}
				err = fmt.Errorf("it is %v, but is in %s", j.State, set)
			case !ended && float64(j.Seq) != m.Score:
				err = fmt.Errorf("its seq is %d, and %v in %s", j.Seq, m.Score, set)
			default:
				bytes += len(j.Argument) + len(j.Result) + len(j.Error)
				visit(j, forgetAt, dropAt)
				continue
			}
			r.noteUnreadable(r.keys.prefix+"job:"+name, err)
		}
		switch {
		case last:
			return nil
		case bytes > roundBytes:
			length = max(1, length/2)
		default:
			length = min(loadPage, 2*length)
		}
	}
}

// isListed reports whether a job is in the set of its state.
func (r *Redis) isListed(ctx context.Context, j *job.Job) (is bool, err error) {
	set := r.keys.live
	if j.State.Ended() {
		set = r.keys.ended
	}
	err = r.retryRead(ctx, func() error {
		err := r.client.ZScore(ctx, set, j.ID.String()).Err()
		if is = err == nil; errors.Is(err, redis.Nil) {
			return nil
		}
		return err
	})
	return is, err
}

// unlist removes a job from the set of another state. The move between the two sets failed midway
// and was not repeated; unlist completes it.
func (r *Redis) unlist(j *job.Job, forgetAt, dropAt int64) {
	oldJob := *j
	if oldJob.State = job.Queued; !j.State.Ended() {
		oldJob.State = job.Done
	}
	r.Move(&oldJob, j, forgetAt, dropAt, func(err error) {
		r.opt.Log.Warn().Err(err).Stringer("id", j.ID).Msg("a job was in two sets after a script that had failed midway")
	})
}

// loadKeys reads the idempotency keys that are still valid, page by page.
func (r *Redis) loadKeys(ctx context.Context, visit func(until int64, size int)) error {
	latest := r.At(boot.Since()) + KeyTTL.Milliseconds() // hold.lua makes keys that end later end then
	for at := int64(0); ; at += loadPage {
		var names []redis.Z
		var sizes []*redis.IntCmd
		err := r.retryRead(ctx, func() (err error) {
			if names, err = r.client.ZRangeWithScores(ctx, r.keys.idems, at, at+loadPage-1).Result(); err != nil || len(names) == 0 {
				return err
			}
			pipe := r.client.Pipeline()
			sizes = sizes[:0]
			for _, n := range names {
				sizes = append(sizes, pipe.StrLen(ctx, n.Member.(string)))
			}
			roundTrip(ctx, pipe)
			for _, s := range sizes {
				if err := s.Err(); err != nil && kindOf(err) != kindFaulty {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, n := range names {
			if size := sizes[i].Val(); size > 0 {
				name := strings.TrimPrefix(n.Member.(string), r.keys.idempotency(""))
				visit(min(int64(n.Score), latest), len(name)+int(size))
			}
		}
		if len(names) < loadPage {
			return nil
		}
	}
}

func readJob(name string, hash *redis.SliceCmd) (j *job.Job, forgetAt, dropAt int64, err error) {
	id, ok := job.ParseID(name)
	if !ok {
		return nil, 0, 0, errors.New("its name is not an id")
	}
	if err := hash.Err(); err != nil {
		return nil, 0, 0, err
	}
	return decode(id, hash.Val())
}

// readHashes reads the hashes of jobs. Each answer may have an error of its own.
func (r *Redis) readHashes(ctx context.Context, members []redis.Z) ([]*redis.SliceCmd, error) {
	pipe := r.client.Pipeline()
	answers := make([]*redis.SliceCmd, len(members))
	for i, m := range members {
		answers[i] = pipe.HMGet(ctx, r.keys.prefix+"job:"+m.Member.(string), fieldNames...)
	}
	if len(members) == 0 {
		return nil, nil
	}
	roundTrip(ctx, pipe)
	for _, a := range answers {
		if err := a.Err(); err != nil && kindOf(err) != kindFaulty {
			return nil, err
		} else if err == nil && len(a.Val()) != len(fieldNames) {
			return nil, fmt.Errorf("%w: %d values, not %d", errUnexpectedAnswer, len(a.Val()), len(fieldNames))
		}
	}
	return answers, nil
}

// retryRead repeats a read until Redis answers or the lease is lost. It logs why Redis does not
// answer, since a renewal of the lease may succeed meanwhile.
func (r *Redis) retryRead(ctx context.Context, read func() error) error {
	wait, logged := newBackoff(), ""
	for {
		err := read()
		if err == nil || kindOf(err) != kindAway {
			return err
		}
		if err.Error() != logged {
			logged = err.Error()
			r.opt.Log.Warn().Err(err).Msg("redis refuses to be read; trying again")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.Lost():
			return r.Err()
		default:
		}
		pauseFor(ctx.Done(), wait)
	}
}
