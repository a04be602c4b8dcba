// Package push carries jobs to workers over HTTP and tells what came of it: it
// judges the answer, not the job. Connections are kept, redirects and proxies are
// not followed, and the address of a worker is checked when it is dialled.
package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
)

const (
	// answerTime is how long a worker may take to answer, connectTime how long
	// until a connection to it is there.
	answerTime  = 5 * time.Second
	connectTime = 5 * time.Second
	idleTime    = 90 * time.Second
	// hostConns bounds the connections to one address; more jobs wait for one.
	hostConns = 64
	idleConns = 4096
	maxHeader = 16 << 10
	// longestPause is how much of a Retry-After counts.
	longestPause = 60 * time.Second
	// shownBody is how much of an answer is told to people, in bytes; drained how
	// much is read so that the connection can be used again.
	shownBody, drained = 200, 16 << 10
)

// Client implements master.Pusher.
type Client struct {
	allow  []netip.Prefix
	client http.Client
}

// New returns a client that dials loopback addresses, those that workers register
// from, and those in allow.
func New(allow []netip.Prefix) *Client {
	c := &Client{allow: allow}
	dialer := net.Dialer{Timeout: connectTime, KeepAlive: 30 * time.Second}
	c.client = http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				d := dialer
				d.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
					at, err := netip.ParseAddrPort(resolved)
					if err == nil {
						err = c.check(at.Addr(), fromOf(ctx))
					}
					return err
				}
				return d.DialContext(ctx, network, addr)
			},
			TLSHandshakeTimeout: connectTime, IdleConnTimeout: idleTime, DisableCompression: true,
			MaxIdleConns: idleConns, MaxIdleConnsPerHost: hostConns, MaxConnsPerHost: hostConns, MaxResponseHeaderBytes: maxHeader,
		},
	}
	return c
}

// from is the key of the address that a worker registered from.
type from struct{}

func fromOf(ctx context.Context) string {
	host, _ := ctx.Value(from{}).(string)
	return host
}

// check returns why a worker that registered from a host may not be at an address.
func (c *Client) check(at netip.Addr, host string) error {
	at = at.Unmap().WithZone("")
	if at.IsLoopback() {
		return nil
	}
	if registered, err := netip.ParseAddr(host); err == nil && registered.Unmap().WithZone("") == at {
		return nil
	}
	for _, p := range c.allow {
		if p.Contains(at) {
			return nil
		}
	}
	return fmt.Errorf("%s is neither a loopback address nor the one that the worker registered from; --worker-allow names others", at)
}

// Check returns what is wrong with pushing to a URL for a worker that registers
// from a host, nil for nothing. The addresses of a name are checked when it is
// dialled.
func (c *Client) Check(text, host string) *job.Fault {
	wrong := func(format string, args ...any) *job.Fault {
		return job.Refuse(job.InvalidValue, "url", "url "+format, args...)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return wrong("must be an http or https URL such as http://127.0.0.1:8000, not %.200q", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return wrong("must have no user, query or fragment: %.200q", text)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return wrong("must have a port from 1 to 65535: %.200q", text)
		}
	}
	if at, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := c.check(at, host); err != nil {
			return wrong("cannot be: %v", err)
		}
	}
	return nil
}

// Push implements master.Pusher.
func (c *Client) Push(w *job.Worker, h *job.Handout, answered func(master.Answer)) {
	go func() { answered(c.push(w, h)) }()
}

// attempt is a push under way.
type attempt struct {
	cancel context.CancelFunc
	timer  *time.Timer
	sent   atomic.Bool // some of it may have arrived
}

// connected starts the time that the worker has for its answer.
func (a *attempt) connected(httptrace.GotConnInfo) { a.timer.Reset(answerTime) }

func (c *Client) push(w *job.Worker, h *job.Handout) master.Answer {
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), from{}, w.Host))
	defer cancel()
	a := &attempt{cancel: cancel}
	a.timer = time.AfterFunc(connectTime, cancel)
	defer a.timer.Stop()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: a.connected, WroteHeaders: func() { a.sent.Store(true) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(w.URL, "/")+"/worker-job", bytes.NewReader(AppendHandout(nil, h)))
	if err != nil {
		return master.Answer{Kind: master.Unreachable, Reason: err.Error()}
	}
	req.Header["Content-Type"] = msgpackType
	req.Header["User-Agent"] = agent
	if w.Token != "" {
		req.Header["Authorization"] = []string{"Bearer " + w.Token}
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return a.failed(err)
	}
	defer resp.Body.Close()
	return judge(resp)
}

var (
	msgpackType = []string{"application/msgpack"}
	agent       = []string{"jq-master"}
)

// failed is what it means that no answer came.
func (a *attempt) failed(err error) master.Answer {
	var in *url.Error
	if errors.As(err, &in) {
		err = in.Err // without the URL
	}
	if a.sent.Load() {
		return master.Answer{Kind: master.Taken, Reason: "no answer: " + err.Error()}
	}
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("no connection within %v", connectTime)
	}
	return master.Answer{Kind: master.Unreachable, Reason: err.Error()}
}

func judge(resp *http.Response) master.Answer {
	var head [shownBody]byte
	n, _ := io.ReadFull(resp.Body, head[:])
	if n == shownBody {
		_, _ = io.CopyN(io.Discard, resp.Body, drained)
	}
	a := master.Answer{Kind: master.Refused, Reason: "the worker answered " + resp.Status}
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return master.Answer{Kind: master.Taken}
	case code == http.StatusNotFound:
		a.Kind = master.UnknownName
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		a.Kind, a.RetryAfter = master.Busy, retryAfter(resp.Header.Get("Retry-After"), time.Now())
	case code >= 500:
		a.Kind = master.Broken
	}
	if text := readable(head[:n]); text != "" {
		a.Reason += ": " + text
	}
	return a
}

// readable is what people can read of an answer's body.
func readable(body []byte) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(body), "?"))
	return strings.TrimSpace(text)
}

// retryAfter reads the header: seconds, or a time.
func retryAfter(text string, now time.Time) time.Duration {
	var d time.Duration
	if n, err := strconv.ParseFloat(text, 64); err == nil && n > 0 {
		d = time.Duration(min(n, longestPause.Seconds()) * float64(time.Second))
	} else if t, err := http.ParseTime(text); err == nil {
		d = t.Sub(now)
	}
	return max(0, min(d, longestPause))
}

// AppendHandout appends the MessagePack of a job on its way to a worker.
func AppendHandout(dst []byte, h *job.Handout) []byte {
	dst = msgp.AppendMapHeader(dst, 7)
	for _, key := range [...]string{"id", "job_id"} {
		dst = pack.AppendID(msgp.AppendString(dst, key), h.ID)
	}
	dst = msgp.AppendString(msgp.AppendString(dst, "name"), h.Name)
	dst = append(msgp.AppendString(dst, "argument"), h.Argument...)
	dst = msgp.AppendUint64(msgp.AppendString(dst, "timeout"), uint64(h.Timeout))
	dst = msgp.AppendUint64(msgp.AppendString(dst, "attempt"), uint64(h.Attempt))
	return pack.AppendTime(msgp.AppendString(dst, "deadline"), h.Deadline)
}
