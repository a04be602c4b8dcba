// Package push sends jobs to workers over HTTP and returns whether they were accepted; workers
// report the outcome of a job later. Connections are reused, redirects are not followed, proxies
// are not used, and the address of a worker is checked when it is dialled.
package push

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/tinylib/msgp/msgp"
	"github.com/valyala/fasthttp"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
)

const (
	// answerTimeout bounds the time for a worker's answer. connectTimeout bounds the time to
	// connect.
	answerTimeout  = 5 * time.Second
	connectTimeout = 5 * time.Second
	idleTimeout    = 90 * time.Second
	// maxHostConns limits the connections to a worker. Further jobs wait until a connection is free.
	maxHostConns   = 64
	maxHeaderBytes = 16 << 10
	// maxPause is the longest Retry-After that counts.
	maxPause = 60 * time.Second
	// maxShownBody limits the bytes of an answer that people are shown. maxAnswer limits the bytes
	// that are read.
	maxShownBody, maxAnswer = 200, 64 << 10
)

// Client implements master.Pusher.
type Client struct {
	allowedPrefixes []netip.Prefix

	mu      sync.Mutex // guards the fields below
	targets map[address]*target
	sweepAt int // when there are this many targets, unused ones are removed
}

// address is the URL of a worker and the address that it registered from.
type address struct{ url, host string }

// target holds the connections to a worker.
type target struct {
	uri    *fasthttp.URI
	client fasthttp.HostClient
}

// New returns a client that dials loopback addresses, the addresses from which workers
// register, and those in allowedPrefixes.
func New(allowedPrefixes []netip.Prefix) *Client {
	return &Client{allowedPrefixes: allowedPrefixes, targets: map[address]*target{}, sweepAt: minSweep}
}

const minSweep = 64

// target returns the target of a worker.
func (c *Client) target(w *job.Worker) (*target, error) {
	at := address{w.URL, w.Host}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.targets[at]; t != nil {
		return t, nil
	}
	if len(c.targets) >= c.sweepAt {
		for old, t := range c.targets {
			if t.client.PendingRequests() == 0 && time.Since(t.client.LastUseTime()) > idleTimeout {
				delete(c.targets, old)
			}
		}
		c.sweepAt = max(minSweep, 2*len(c.targets))
	}
	t, err := c.newTarget(at)
	if err == nil {
		c.targets[at] = t
	}
	return t, err
}

func (c *Client) newTarget(addr address) (*target, error) {
	u, err := url.Parse(addr.url)
	if err != nil {
		return nil, err
	}
	port, name := "80", ""
	if u.Scheme == "https" {
		port, name = "443", u.Hostname()
	}
	if p := u.Port(); p != "" {
		port = p
	}
	// The scheme is always http, because dial itself adds TLS.
	t := &target{uri: &fasthttp.URI{DisablePathNormalizing: true}}
	if err := t.uri.Parse(nil, []byte("http://"+u.Host+strings.TrimSuffix(u.EscapedPath(), "/")+"/worker-job")); err != nil {
		return nil, err
	}
	t.client = fasthttp.HostClient{
		Addr: net.JoinHostPort(u.Hostname(), port), Name: "jq-master",
		Dial:     func(to string) (net.Conn, error) { return c.dial(to, addr.host, name) },
		MaxConns: maxHostConns, MaxConnWaitTimeout: connectTimeout, MaxIdleConnDuration: idleTimeout,
		ReadTimeout: answerTimeout, WriteTimeout: answerTimeout, ReadBufferSize: maxHeaderBytes, MaxResponseBodySize: maxAnswer,
		DisablePathNormalizing: true, MaxIdemponentCallAttempts: maxHostConns + 1,
		// If the worker has closed an idle connection, another one is tried.
		RetryIfErr: func(_ *fasthttp.Request, _ int, err error) (bool, bool) { return false, errors.Is(err, errClosed) },
	}
	return t, nil
}

// check returns an error if jobs of a worker that registered from host must not be pushed to the
// address addr.
func (c *Client) check(addr netip.Addr, host string) error {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return nil
	}
	if registered, err := netip.ParseAddr(host); err == nil && registered.Unmap().WithZone("") == addr {
		return nil
	}
	for _, p := range c.allowedPrefixes {
		if p.Contains(addr) {
			return nil
		}
	}
	return fmt.Errorf("%s is neither a loopback address nor the one from which the worker registered; --worker-allow permits others", addr)
}

// Check returns a fault if text must not be the URL of a worker that registers from host. If the
// URL has a host name, the addresses of that name are checked when it is dialled.
func (c *Client) Check(text, host string) *job.Fault {
	newFault := func(format string, args ...any) *job.Fault {
		return job.Refuse(job.InvalidValue, "url", "url "+format, args...)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return newFault("must be an http or https URL such as http://127.0.0.1:8000, not %.200q", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return newFault("must have no user, query or fragment: %.200q", text)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return newFault("must have a port from 1 to 65535: %.200q", text)
		}
	}
	if at, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := c.check(at, host); err != nil {
			return newFault("is not allowed: %v", err)
		}
	}
	return nil
}

// Push implements master.Pusher.
func (c *Client) Push(w *job.Worker, h *job.Handout, onAnswer func(master.Answer)) {
	go func() { onAnswer(c.push(w, h)) }()
}

func (c *Client) push(w *job.Worker, h *job.Handout) master.Answer {
	t, err := c.target(w)
	if err != nil {
		return master.Answer{Kind: master.AnswerUnreachable, Reason: err.Error()}
	}
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.SetURI(t.uri)
	req.Header.SetContentType("application/msgpack")
	if w.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.Token)
	}
	req.SetBodyRaw(AppendHandout(make([]byte, 0, len(h.Argument)+len(h.Name)+200), h))
	err = t.client.Do(req, resp)
	var dial *dialError
	switch {
	case err == nil || errors.Is(err, fasthttp.ErrBodyTooLarge):
		return parseAnswer(resp)
	case errors.As(err, &dial):
		return master.Answer{Kind: master.AnswerUnreachable, Reason: dial.Error()}
	case errors.Is(err, fasthttp.ErrNoFreeConns), errors.Is(err, errClosed):
		return master.Answer{Kind: master.AnswerUnreachable, Reason: fmt.Sprintf("no connection within %v", connectTimeout)}
	case resp.StatusCode() >= http.StatusMultipleChoices: // only the body did not come as it should
		return parseAnswer(resp)
	}
	return master.Answer{Kind: master.AnswerTaken, Reason: describeError(err)}
}

// describeError returns a readable message that says why a request got no answer.
func describeError(err error) string {
	switch {
	case errors.Is(err, fasthttp.ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Sprintf("no answer within %v", answerTimeout)
	case errors.Is(err, fasthttp.ErrConnectionClosed):
		return "the connection was cut off"
	}
	return "no answer: " + err.Error()
}

func parseAnswer(resp *fasthttp.Response) master.Answer {
	code := resp.StatusCode()
	a := master.Answer{Kind: master.AnswerRefused}
	switch {
	case code >= 200 && code < 300:
		return master.Answer{Kind: master.AnswerTaken}
	case code == http.StatusNotFound:
		a.Kind = master.AnswerUnknownName
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		a.Kind, a.RetryAfter = master.AnswerBusy, retryAfter(string(resp.Header.Peek("Retry-After")), time.Now())
	case code >= 500:
		a.Kind = master.AnswerBroken
	}
	a.Reason = fmt.Sprintf("the worker answered %d %s", code, http.StatusText(code))
	body := resp.Body()
	if text := printableBody(body[:min(len(body), maxShownBody)]); text != "" {
		a.Reason += ": " + text
	}
	return a
}

// printableBody returns the body of an answer as UTF-8 text without control characters.
func printableBody(body []byte) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(body), "?"))
	return strings.TrimSpace(text)
}

// retryAfter parses a Retry-After header, which has seconds or a date. It returns at most maxPause.
func retryAfter(text string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseFloat(text, 64); err == nil && n > 0 {
		d = time.Duration(min(n, maxPause.Seconds()) * float64(time.Second))
	} else if t, err := http.ParseTime(text); err == nil {
		d = t.Sub(now)
	}
	return max(0, min(d, maxPause))
}

// AppendHandout appends a job as it is sent to workers, in MessagePack.
func AppendHandout(dst []byte, h *job.Handout) []byte {
	dst = msgp.AppendMapHeader(dst, 7)
	for _, key := range [...]string{"id", "job_id"} {
		dst = pack.AppendID(msgp.AppendString(dst, key), h.ID)
	}
	dst = msgp.AppendString(msgp.AppendString(dst, "name"), h.Name)
	dst = append(msgp.AppendString(dst, "argument"), h.Argument...)
	dst = pack.AppendSeconds(msgp.AppendString(dst, "timeout"), h.Timeout)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "attempt"), uint64(h.Attempt))
	return pack.AppendTime(msgp.AppendString(dst, "deadline"), h.Deadline)
}
