package wire

import "strconv"

// The client side of the Append functions. As there, ids and types are
// canonical and bodies valid JSON.

// AppendSubmit appends a submit of r.ID, r.Type (empty: the broker's default
// type), r.Body and r.Priority. The other options are written only if r.Options
// is set, and of these only what differs from absent.
func AppendSubmit(dst []byte, r *Request) []byte {
	start := len(dst)
	dst = appendHeader(dst, 64+len(r.ID)+len(r.Type)+len(r.Body))
	dst = append(dst, `{"action":"submit","id":"`...)
	dst = append(dst, r.ID...)
	dst = append(dst, '"')
	if len(r.Type) > 0 {
		dst = appendStringKey(dst, KeyType, r.Type)
	}
	if r.Priority != 0 {
		dst = appendIntKey(dst, KeyPriority, r.Priority)
	}
	if r.Options {
		dst = appendOptions(dst, r)
	}
	dst = append(dst, `,"body":`...)
	dst = append(dst, r.Body...)
	return setHeader(append(dst, '}'), start)
}

func appendOptions(dst []byte, r *Request) []byte {
	if r.DelayMS != 0 {
		dst = appendIntKey(dst, KeyDelayMS, r.DelayMS)
	}
	if r.TimeoutMS != 0 {
		dst = appendIntKey(dst, KeyTimeoutMS, r.TimeoutMS)
	}
	if r.Retries >= 0 {
		dst = appendIntKey(dst, KeyRetries, int64(r.Retries))
	}
	if r.BackoffMS != 0 {
		dst = appendIntKey(dst, KeyBackoffMS, r.BackoffMS)
	}
	if r.ExpiresMS != 0 {
		dst = appendIntKey(dst, KeyExpiresMS, r.ExpiresMS)
	}
	if r.Detach {
		dst = append(dst, `,"detach":true`...)
	}
	if r.NoAck {
		dst = append(dst, `,"ack":false`...)
	}
	if r.Progress {
		dst = append(dst, `,"progress":true`...)
	}
	return dst
}

func appendStringKey(dst []byte, k Key, canonical []byte) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, k.String()...)
	dst = append(dst, `":"`...)
	dst = append(dst, canonical...)
	return append(dst, '"')
}

func appendIntKey(dst []byte, k Key, n int64) []byte {
	dst = append(dst, ',', '"')
	dst = append(dst, k.String()...)
	dst = append(dst, '"', ':')
	return strconv.AppendInt(dst, n, 10)
}

// AppendJoin appends a join of typ, with prefetch unless it is 0, and with
// "cancel":true if cancel is set.
func AppendJoin(dst, typ []byte, prefetch int, cancel bool) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"join"`...)
	dst = appendStringKey(dst, KeyType, typ)
	if prefetch != 0 {
		dst = appendIntKey(dst, KeyPrefetch, int64(prefetch))
	}
	if cancel {
		dst = append(dst, `,"cancel":true`...)
	}
	return setHeader(append(dst, '}'), start)
}

// AppendRespond appends the answer to a job. An empty id is left out: only sockets
// that joined with prefetch name their jobs.
func AppendRespond(dst, id, body []byte) []byte {
	return appendWork(dst, `{"action":"respond"`, id, body)
}

// AppendWorkerProgress appends news of a run, with id as in AppendRespond.
func AppendWorkerProgress(dst, id, body []byte) []byte {
	return appendWork(dst, `{"action":"progress"`, id, body)
}

func appendWork(dst []byte, head string, id, body []byte) []byte {
	start := len(dst)
	dst = appendHeader(dst, len(head)+len(`,"id":"","body":}`)+len(id)+len(body))
	dst = append(dst, head...)
	if len(id) > 0 {
		dst = appendStringKey(dst, KeyID, id)
	}
	dst = append(dst, `,"body":`...)
	dst = append(dst, body...)
	return setHeader(append(dst, '}'), start)
}

// AppendFail appends the news that a run has failed, with id as in
// AppendRespond. An empty reason and a negative delayMS are left out; retry is
// written when it is false.
func AppendFail(dst, id, reason []byte, retry bool, delayMS int64) []byte {
	start := len(dst)
	dst = append(dst, "\x00\x00\x00\x00"+`{"action":"fail"`...)
	if len(id) > 0 {
		dst = appendStringKey(dst, KeyID, id)
	}
	if len(reason) > 0 {
		dst = appendStringKey(dst, KeyReason, reason)
	}
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

// AppendCancelRequest appends a submitter's {"action":"cancel","id":…}.
func AppendCancelRequest(dst, id []byte) []byte { return AppendCancel(dst, id) }

// AppendHello appends a hello. An empty token or client and a heartbeat of 0 are
// left out. Both strings are given by value.
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
	if heartbeatMS != 0 {
		dst = appendIntKey(dst, KeyHeartbeatMS, heartbeatMS)
	}
	// After the line end an HTTP server, met by mistake, answers at once.
	return setHeader(append(dst, '}', '\n'), start)
}

// AppendPong appends {"action":"pong"}: the answer to a ping of the broker.
func AppendPong(dst []byte) []byte { return append(dst, pongFrame...) }

// AppendPingRequest appends {"action":"ping"}: the broker answers ok.
func AppendPingRequest(dst []byte) []byte { return AppendPing(dst) }
