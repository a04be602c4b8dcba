package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/goccy/go-json"
	"github.com/redis/go-redis/v9"

	"gloom/cmd/jq-master/job"
)

// page is how many jobs are read in one go.
const page = 1000

// Load implements Store.
func (r *Redis) Load(ctx context.Context, each Loaded) error {
	var seq string
	err := r.patiently(ctx, func() (err error) {
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
	each.Seq(last)
	if err := loadHash(ctx, r, r.keys.workers, each.Worker); err != nil {
		return err
	}
	if err := loadHash(ctx, r, r.keys.constraints, each.Constraint); err != nil {
		return err
	}
	for _, set := range []string{r.keys.live, r.keys.ended} {
		if err := r.loadSet(ctx, set, each.Job); err != nil {
			return err
		}
	}
	return nil
}

func loadHash[T any](ctx context.Context, r *Redis, hash string, each func(*T)) error {
	var all map[string]string
	err := r.patiently(ctx, func() (err error) {
		all, err = r.client.HGetAll(ctx, hash).Result()
		return err
	})
	for field, text := range all {
		v := new(T)
		if err := json.Unmarshal([]byte(text), v); err != nil {
			return fmt.Errorf("%s: %s: %w", hash, field, err)
		}
		each(v)
	}
	return err
}

// loadSet reads the jobs of a sorted set, page by page. Of those with the score at
// which a page ended, the next one skips as many as were read.
func (r *Redis) loadSet(ctx context.Context, set string, each func(*job.Job, int64, int64)) error {
	from, skip := "-inf", int64(0)
	for {
		var members []redis.Z
		var values [][]any
		err := r.patiently(ctx, func() (err error) {
			by := &redis.ZRangeBy{Min: from, Max: "+inf", Offset: skip, Count: page}
			if members, err = r.client.ZRangeByScoreWithScores(ctx, set, by).Result(); err == nil {
				values, err = r.hashes(ctx, members)
			}
			return err
		})
		if err != nil {
			return err
		}
		for i, m := range members {
			name := m.Member.(string)
			id, ok := job.ParseID(name)
			if !ok {
				return fmt.Errorf("%s: %q is no id", set, name)
			}
			j, forget, drop, err := decode(id, values[i])
			if err != nil {
				return err
			}
			each(j, forget, drop)
			if at := strconv.FormatFloat(m.Score, 'f', -1, 64); at != from {
				from, skip = at, 0
			}
			skip++
		}
		if len(members) < page {
			return nil
		}
	}
}

func (r *Redis) hashes(ctx context.Context, members []redis.Z) ([][]any, error) {
	pipe := r.client.Pipeline()
	answers := make([]*redis.SliceCmd, len(members))
	for i, m := range members {
		answers[i] = pipe.HMGet(ctx, r.keys.prefix+"job:"+m.Member.(string), fieldNames...)
	}
	if len(members) == 0 {
		return nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	values := make([][]any, len(members))
	for i, a := range answers {
		values[i] = a.Val()
	}
	return values, nil
}

// patiently reads until Redis answers, unless the lease is gone.
func (r *Redis) patiently(ctx context.Context, read func() error) error {
	wait := retries()
	for {
		err := read()
		if err == nil || kindOf(err) != away {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.Lost():
			return r.Err()
		default:
		}
		pause(ctx.Done(), wait)
	}
}
