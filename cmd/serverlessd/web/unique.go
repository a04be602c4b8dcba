package web

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

const (
	// payloadKey is the value of key= that makes each line its own key.
	payloadKey = "payload"
	// maxKeyed is the maximum number of lines with keys in a request. They are written in one
	// transaction.
	maxKeyed = 10_000
)

// keyRequest is a unique key and the other parameters that belong to it.
type keyRequest struct {
	key string
	unique.Request
}

// unique returns the unique key that the query asks for, or nil if there is none.
func (r *request) unique() (*keyRequest, error) {
	if !r.query.Has("key") {
		for _, name := range []string{"while", "for_ms", "mode", "max_ms"} {
			if r.query.Has(name) {
				return nil, missing("key", "%s=%.40q needs key, which is missing", name, r.query.Get(name))
			}
		}
		return nil, nil
	}
	keyReq := &keyRequest{key: r.query.Get("key")}
	if n := len(keyReq.key); n == 0 || n > unique.MaxKeyBytes {
		return nil, invalid("key", "key has %d bytes: must be from 1 to %d", n, unique.MaxKeyBytes)
	}
	var ok bool
	if name := r.query.Get("while"); r.query.Has("while") {
		if keyReq.Period, ok = unique.ParsePeriod(name); !ok {
			return nil, invalid("while", "while=%.40q: must be waiting, live or window", name)
		}
	}
	if name := r.query.Get("mode"); r.query.Has("mode") {
		if keyReq.Mode, ok = unique.ParseMode(name); !ok {
			return nil, invalid("mode", "mode=%.40q: must be keep, replace or extend", name)
		}
	}
	var err, err2 error
	keyReq.Window, err = r.milliseconds("for_ms")
	keyReq.Max, err2 = r.milliseconds("max_ms")
	if err = errors.Join(err, err2); err != nil {
		return nil, err
	}
	if field, lacks, reason := keyReq.Check(); lacks {
		return nil, missing(field, "%s %s", field, reason)
	} else if field != "" {
		return nil, invalid(field, "%s %s", field, reason)
	}
	return keyReq, nil
}

// milliseconds returns a query parameter that is a number of milliseconds, or 0 if it is absent.
func (r *request) milliseconds(name string) (time.Duration, error) {
	if !r.query.Has(name) {
		return 0, nil
	}
	n, err := strconv.ParseInt(r.query.Get(name), 10, 64)
	if limit := unique.MaxDuration.Milliseconds(); err != nil || n < 1 || n > limit {
		return 0, invalid(name, "%s=%.40q: must be from 1 to %d", name, r.query.Get(name), limit)
	}
	return time.Duration(n) * time.Millisecond, nil
}

// addUnique adds lines with unique keys.
func (s *Web) addUnique(r *request, p *parser, keyReq *keyRequest, reply *addReply) error {
	own := keyReq.key == payloadKey
	switch {
	case p.count > 1 && !own:
		return invalid("key", "key=%.40q is the key of one job, but the body has %d lines; key=%s makes each line its own key", keyReq.key, p.count, payloadKey)
	case p.count > maxKeyed:
		return fail(http.StatusRequestEntityTooLarge, "too_large", "body", "the body has %d lines; at most %d are allowed with a key", p.count, maxKeyed)
	}
	lines := make([]store.KeyedEntry, 0, p.count)
	for _, b := range p.batches {
		for _, line := range b.Lines {
			key := keyReq.key
			if own {
				key = keyOf(line)
			}
			lines = append(lines, store.KeyedEntry{Key: key, Entry: journal.Entry{Jobtype: b.Jobtype, Payload: line, Due: b.Due, Delay: b.Delay}})
		}
	}
	shared, err := s.queue.AddUnique(r.Context(), lines, keyReq.Request)
	if refused, ok := errors.AsType[*store.RefusedError](err); ok {
		return fail(http.StatusRequestEntityTooLarge, "too_large", "body", "the store does not accept lines of this size: %v", refused.Err)
	} else if err != nil {
		return err
	}
	reply.Count, reply.status = 0, http.StatusOK
	reply.IDs = make(idListJSON, 0, len(shared)*idSize+1)
	results := make([]*string, len(shared))
	for i, result := range shared {
		reply.IDs.add(result.ID)
		if result.Made() {
			reply.Count++
		}
		if results[i] = &shared[i].Outcome; result.Outcome == "" {
			results[i], reply.status = nil, http.StatusCreated
		}
	}
	reply.IDs.close()
	switch {
	case len(shared) > 1:
		reply.Unique = results
	case results[0] != nil:
		reply.Unique = *results[0]
	}
	if len(shared) == 1 {
		reply.ID = shared[0].ID
	}
	return nil
}

// keyOf returns a line as a key, or its SHA-256 if it is too long for a key.
func keyOf(line []byte) string {
	if len(line) <= unique.MaxKeyBytes {
		return string(line)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(line))
}
