package wire

import (
	"slices"
	"strconv"
)

// Each Append function appends one whole frame, header included, to dst. Ids and types must be
// canonical and bodies valid JSON; neither is checked.

const (
	jobHead        = `{"action":"job","id":"`
	jobTypePart    = `","type":"`
	jobBodyPart    = `","body":`
	jobHeadersPart = `","headers":`
	bodyKey        = `,"body":`
	okStatePart    = `","state":"`
	resultHead     = `{"id":"`
	progressPart   = `","progress":`
	okHead         = `{"ok":true,"id":"`
	cancelHead     = `{"action":"cancel","id":"`
	okFrame        = "\x00\x00\x00\x0b" + `{"ok":true}`
	pingFrame      = "\x00\x00\x00\x11" + `{"action":"ping"}`
	pongFrame      = "\x00\x00\x00\x11" + `{"action":"pong"}`
	leaveFrame     = "\x00\x00\x00\x12" + `{"action":"leave"}`
)

// BodyEnd ends a frame that was begun with one of the Head functions, after its
// body.
const BodyEnd = '}'

// appendHeader makes room for a frame with n bytes of payload and appends its header.
func appendHeader(dst []byte, n int) []byte {
	dst = slices.Grow(dst, HeaderLen+n)
	return append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

// AppendOK appends {"ok":true}: the reply to a request, unless it is a submitter's request
// about a job.
func AppendOK(dst []byte) []byte { return append(dst, okFrame...) }

// AppendOKID appends {"ok":true,"id":…}: the reply to submit, cancel and change.
func AppendOKID(dst, id []byte) []byte {
	dst = appendHeader(dst, len(okHead)+len(id)+2)
	dst = append(dst, okHead...)
	dst = append(dst, id...)
	return append(dst, '"', '}')
}

// AppendAttached appends {"ok":true,"id":…,"state":…}: the reply to attach.
func AppendAttached(dst, id []byte, state string) []byte {
	dst = appendHeader(dst, len(okHead)+len(id)+len(okStatePart)+len(state)+2)
	dst = append(dst, okHead...)
	dst = append(dst, id...)
	dst = append(dst, okStatePart...)
	dst = append(dst, state...)
	return append(dst, '"', '}')
}

// AppendJobHead appends a job frame up to its body, which has bodyLen bytes;
// nil headers are left out. The body and BodyEnd must follow.
func AppendJobHead(dst, id, typ, headers []byte, bodyLen int) []byte {
	n := len(jobHead) + len(id) + len(jobTypePart) + len(typ) + len(jobBodyPart)
	if headers != nil {
		n += len(jobHeadersPart) + len(headers) + len(bodyKey) - len(jobBodyPart)
	}
	dst = slices.Grow(dst, HeaderLen+n)
	n += bodyLen + 1
	dst = append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	dst = append(dst, jobHead...)
	dst = append(dst, id...)
	dst = append(dst, jobTypePart...)
	dst = append(dst, typ...)
	if headers == nil {
		return append(dst, jobBodyPart...)
	}
	dst = append(dst, jobHeadersPart...)
	dst = append(dst, headers...)
	return append(dst, bodyKey...)
}

// AppendJob appends {"action":"job","id":…,"type":…,"headers":…,"body":…}, which hands a job to
// a worker; nil headers are left out.
func AppendJob(dst, id, typ, headers, body []byte) []byte {
	dst = slices.Grow(dst, HeaderLen+len(jobHead)+len(id)+len(jobTypePart)+len(typ)+len(jobHeadersPart)+len(headers)+len(jobBodyPart)+len(body)+1)
	dst = AppendJobHead(dst, id, typ, headers, len(body))
	dst = append(dst, body...)
	return append(dst, BodyEnd)
}

// AppendResultHead appends a result frame up to its body, which has bodyLen
// bytes. The body and BodyEnd must follow.
func AppendResultHead(dst, id []byte, bodyLen int) []byte {
	return appendIDHead(dst, id, jobBodyPart, bodyLen)
}

// AppendResult appends {"id":…,"body":…}: the answer to a job.
func AppendResult(dst, id, body []byte) []byte {
	return appendIDBody(dst, id, jobBodyPart, body)
}

// AppendProgressHead appends a progress frame up to its value, which has bodyLen
// bytes. The value and BodyEnd must follow.
func AppendProgressHead(dst, id []byte, bodyLen int) []byte {
	return appendIDHead(dst, id, progressPart, bodyLen)
}

// AppendProgress appends {"id":…,"progress":…}: progress of a job.
func AppendProgress(dst, id, body []byte) []byte {
	return appendIDBody(dst, id, progressPart, body)
}

func appendIDHead(dst, id []byte, key string, bodyLen int) []byte {
	n := len(resultHead) + len(id) + len(key)
	dst = slices.Grow(dst, HeaderLen+n)
	n += bodyLen + 1
	dst = append(dst, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	dst = append(dst, resultHead...)
	dst = append(dst, id...)
	return append(dst, key...)
}

func appendIDBody(dst, id []byte, key string, body []byte) []byte {
	dst = slices.Grow(dst, HeaderLen+len(resultHead)+len(id)+len(key)+len(body)+1)
	dst = appendIDHead(dst, id, key, len(body))
	dst = append(dst, body...)
	return append(dst, BodyEnd)
}

// AppendError appends {"error":…,"reason":…} and, unless id is empty, "id". The reason may be
// any text; if it is empty, the code's name is sent instead.
func AppendError(dst []byte, code Code, reason string, id []byte) []byte {
	if reason == "" {
		reason = code.String()
	}
	start := len(dst)
	dst = appendErrorHead(dst, code)
	dst = Canonical(dst, reason)
	return appendErrorTail(dst, start, id)
}

// The values of cause in a job_failed.
const (
	CauseLost  = "lost"  // the last run was lost with its worker, so it is unknown whether the work was done
	CauseFinal = "final" // the worker asked for no retry
	CauseLater = "later" // the worker asked for a retry after delay_ms, but no retries were left
)

// AppendJobFailed appends {"error":"job_failed","reason":…,"cause":…,"id":…}, with
// "delay_ms" if the cause is CauseLater.
func AppendJobFailed(dst []byte, reason, cause string, delayMS int64, id []byte) []byte {
	start := len(dst)
	dst = appendErrorHead(dst, JobFailed)
	dst = Canonical(dst, reason)
	if cause == CauseLater {
		dst = strconv.AppendInt(append(dst, `","delay_ms":`...), delayMS, 10)
		dst = append(dst, `,"cause":"`...)
	} else {
		dst = append(dst, `","cause":"`...)
	}
	return appendErrorTail(append(dst, cause...), start, id)
}

func appendErrorHead(dst []byte, code Code) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, `{"error":"`...)
	dst = append(dst, code.String()...)
	return append(dst, `","reason":"`...)
}

func appendErrorTail(dst []byte, start int, id []byte) []byte {
	if len(id) > 0 {
		dst = append(dst, `","id":"`...)
		dst = append(dst, id...)
	}
	return setHeader(append(dst, '"', '}'), start)
}

// setHeader writes the length of the frame that begins at start.
func setHeader(dst []byte, start int) []byte {
	n := len(dst) - start - HeaderLen
	dst[start], dst[start+1], dst[start+2], dst[start+3] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return dst
}

// AppendCancel appends {"action":"cancel","id":…}. It tells a worker that the run is no
// longer wanted. From a submitter, the same frame asks to cancel the job.
func AppendCancel(dst, id []byte) []byte {
	dst = appendHeader(dst, len(cancelHead)+len(id)+2)
	dst = append(dst, cancelHead...)
	dst = append(dst, id...)
	return append(dst, '"', '}')
}

// AppendPing appends {"action":"ping"}, which either side may send; the broker replies ok.
func AppendPing(dst []byte) []byte { return append(dst, pingFrame...) }

// MaxPayloadOut returns the length of the longest payload that a broker sends if it accepts
// payloads of maxFrame bytes. This is a job with the longest body, the longest headers, and an id
// and a type made of escapes such as \u0000.
func MaxPayloadOut(maxFrame int) int { return maxFrame + 2*6*MaxNameBytes + MaxHeaders + 64 }

// AppendHelloOK appends the reply to hello: the server's name and version, and
// its limits: bytes of frames in and out, bytes of a name, prefetch, and types of a
// join.
func AppendHelloOK(dst []byte, server string, maxFrame, maxFrameOut, maxID, maxPrefetch, maxTypes int) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = append(dst, `{"ok":true,"server":"`...)
	dst = Canonical(dst, server)
	dst = append(dst, `","limits":{"max_frame":`...)
	dst = strconv.AppendInt(dst, int64(maxFrame), 10)
	dst = append(dst, `,"max_frame_out":`...)
	dst = strconv.AppendInt(dst, int64(maxFrameOut), 10)
	dst = append(dst, `,"max_id":`...)
	dst = strconv.AppendInt(dst, int64(maxID), 10)
	dst = append(dst, `,"max_prefetch":`...)
	dst = strconv.AppendInt(dst, int64(maxPrefetch), 10)
	dst = append(dst, `,"max_types":`...)
	dst = strconv.AppendInt(dst, int64(maxTypes), 10)
	return setHeader(append(dst, '}', '}'), start)
}
