package wire

import "strconv"

// These are the Append functions for clients. Here, too, ids and types must be canonical and
// bodies valid JSON.

// AppendSubmit appends a submit of req.ID, req.Type (empty: the broker's default type) and req.Body,
// with the options that are not absent.
func AppendSubmit(dst []byte, req *Request) []byte {
	start := len(dst)
	dst = appendHeader(dst, 64+len(req.ID)+len(req.Type)+len(req.Headers)+len(req.Body))
	dst = append(dst, `{"action":"submit","id":"`...)
	dst = append(dst, req.ID...)
	dst = append(dst, '"')
	dst = appendNonEmpty(dst, KeyType, req.Type)
	dst = appendNonZero(dst, KeyPriority, req.Priority)
	dst = appendNonZero(dst, KeyDelayMS, req.DelayMS)
	dst = appendNonZero(dst, KeyTimeoutMS, req.TimeoutMS)
	if req.Retries >= 0 {
		dst = appendIntKey(dst, KeyRetries, int64(req.Retries))
	}
	dst = appendNonZero(dst, KeyBackoffMS, req.BackoffMS)
	dst = appendNonZero(dst, KeyExpiresMS, req.ExpiresMS)
	if req.Detach {
		dst = append(dst, `,"detach":true`...)
	}
	if req.NoAck {
		dst = append(dst, `,"ack":false`...)
	}
	if req.WantProgress {
		dst = append(dst, `,"progress":true`...)
	}
	dst = appendNonZero(dst, KeyAgeMS, req.AgeMS)
	dst = appendNonZero(dst, KeyKeepMS, req.KeepMS)
	if len(req.Groups) > 0 {
		dst = appendListKey(dst, KeyGroups, req.Groups)
	}
	if req.Headers != nil {
		dst = append(append(dst, `,"headers":`...), req.Headers...)
	}
	dst = append(dst, `,"body":`...)
	dst = append(dst, req.Body...)
	return setHeader(append(dst, '}'), start)
}

func appendListKey(dst []byte, key Key, names [][]byte) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key.String()...)
	dst = append(dst, '"', ':', '[')
	for i, name := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), name...), '"')
	}
	return append(dst, ']')
}

func appendStringKey(dst []byte, key Key, canonical []byte) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key.String()...)
	dst = append(dst, `":"`...)
	dst = append(dst, canonical...)
	return append(dst, '"')
}

func appendIntKey(dst []byte, key Key, n int64) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, key.String()...)
	dst = append(dst, '"', ':')
	return strconv.AppendInt(dst, n, 10)
}

func appendNonEmpty(dst []byte, key Key, canonical []byte) []byte {
	if len(canonical) == 0 {
		return dst
	}
	return appendStringKey(dst, key, canonical)
}

func appendNonZero(dst []byte, key Key, n int64) []byte {
	if n == 0 {
		return dst
	}
	return appendIntKey(dst, key, n)
}

// AppendJoin appends a join of req.Types without req.Except, or of req.Type. Of req.Prefetch,
// req.Cancel and req.WantHeaders it writes only those that are not absent.
func AppendJoin(dst []byte, req *Request) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"join"`...)
	if len(req.Types) > 0 {
		dst = appendListKey(dst, KeyTypes, req.Types)
	} else {
		dst = appendStringKey(dst, KeyType, req.Type)
	}
	if len(req.Except) > 0 {
		dst = appendListKey(dst, KeyExcept, req.Except)
	}
	dst = appendNonZero(dst, KeyPrefetch, int64(req.Prefetch))
	if req.WantCancels {
		dst = append(dst, `,"cancel":true`...)
	}
	if req.WantHeaders {
		dst = append(dst, `,"headers":true`...)
	}
	return setHeader(append(dst, '}'), start)
}

// AppendChange appends a change of the job req.ID: of its priority and groups if HasPriority
// and HasGroups are set, and of its delay unless req.AfterMS is negative.
func AppendChange(dst []byte, req *Request) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"change"`...)
	dst = appendStringKey(dst, KeyID, req.ID)
	if req.HasPriority {
		dst = appendIntKey(dst, KeyPriority, req.Priority)
	}
	if req.HasGroups {
		dst = appendListKey(dst, KeyGroups, req.Groups)
	}
	if req.AfterMS >= 0 {
		dst = appendIntKey(dst, KeyDelayMS, req.AfterMS)
	}
	return setHeader(append(dst, '}'), start)
}

// AppendAttach appends an attach to a kept job; progress says whether it asks for progress
// frames.
func AppendAttach(dst, id []byte, progress bool) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"attach"`...)
	dst = appendStringKey(dst, KeyID, id)
	if progress {
		dst = append(dst, `,"progress":true`...)
	}
	return setHeader(append(dst, '}'), start)
}

// AppendRelease appends a release, with id as in AppendRespond; a negative
// delayMS is left out.
func AppendRelease(dst, id []byte, delayMS int64) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"release"`...)
	dst = appendNonEmpty(dst, KeyID, id)
	if delayMS >= 0 {
		dst = appendIntKey(dst, KeyDelayMS, delayMS)
	}
	return setHeader(append(dst, '}'), start)
}

// AppendRespond appends the answer to a job. An empty id is left out: only
// connections that joined with prefetch name their jobs.
func AppendRespond(dst, id, body []byte) []byte {
	return appendWork(dst, `{"action":"respond"`, id, body)
}

// AppendWorkerProgress appends progress of a run, with id as in AppendRespond.
func AppendWorkerProgress(dst, id, body []byte) []byte {
	return appendWork(dst, `{"action":"progress"`, id, body)
}

func appendWork(dst []byte, head string, id, body []byte) []byte {
	start := len(dst)
	dst = appendHeader(dst, len(head)+len(`,"id":"","body":}`)+len(id)+len(body))
	dst = append(dst, head...)
	dst = appendNonEmpty(dst, KeyID, id)
	dst = append(dst, `,"body":`...)
	dst = append(dst, body...)
	return setHeader(append(dst, '}'), start)
}

// AppendFail appends a fail, with id as in AppendRespond. An empty reason and a negative
// delayMS are left out; retry is written only if it is false.
func AppendFail(dst, id, reason []byte, retry bool, delayMS int64) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"fail"`...)
	dst = appendNonEmpty(dst, KeyID, id)
	dst = appendNonEmpty(dst, KeyReason, reason)
	if !retry {
		dst = append(dst, `,"retry":false`...)
	}
	if delayMS >= 0 {
		dst = appendIntKey(dst, KeyDelayMS, delayMS)
	}
	return setHeader(append(dst, '}'), start)
}

// AppendLeave appends {"action":"leave"}.
func AppendLeave(dst []byte) []byte { return append(dst, leaveFrame...) }

// AppendHello appends a hello. An empty token or client and a heartbeat of 0 are
// left out. Token and client are given by value.
func AppendHello(dst []byte, token, client string, heartbeatMS int64) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"hello"`...)
	if token != "" {
		dst = append(dst, `,"token":"`...)
		dst = append(Canonical(dst, token), '"')
	}
	if client != "" {
		dst = append(dst, `,"client":"`...)
		dst = append(Canonical(dst, client), '"')
	}
	dst = appendNonZero(dst, KeyHeartbeatMS, heartbeatMS)
	// The newline makes an HTTP server answer at once, if the client has connected to one by
	// mistake.
	return setHeader(append(dst, '}', '\n'), start)
}

// AppendPong appends {"action":"pong"}: the answer to a broker's ping.
func AppendPong(dst []byte) []byte { return append(dst, pongFrame...) }
