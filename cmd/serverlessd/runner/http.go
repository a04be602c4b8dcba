package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"

	"gloom/cmd/serverlessd/job"
)

const (
	dialTimeout = 10 * time.Second
	// idleConnTimeout is the time for which an idle connection is kept. Common servers keep
	// connections for two seconds or longer, so the runner closes them first: a request on a
	// connection that the server is closing would fail.
	idleConnTimeout = time.Second
	// maxIdleConns limits the idle connections that are kept for a host.
	maxIdleConns = 256
	// lastReplyWait is how long a request whose time is over waits for a reply: after a stop of this
	// daemon, the reply waits in the socket.
	lastReplyWait = 100 * time.Millisecond
)

func newClient(o Options) *http.Client {
	dialer := net.Dialer{Timeout: dialTimeout, Control: func(_, address string, _ syscall.RawConn) error {
		return checkDial(address, o.HTTPAllow)
	}}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true, DisableCompression: true,
			IdleConnTimeout: idleConnTimeout, MaxIdleConnsPerHost: maxIdleConns, MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// translatedPrefixes holds the IPv6 prefixes of addresses whose last four bytes are an IPv4 address.
var translatedPrefixes = []netip.Prefix{netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("::/96")}

// checkDial returns an error if a handler at a resolved address must not be called. Link-local
// addresses are never dialed, because cloud providers serve the secrets of a machine there.
func checkDial(address string, allowedPrefixes []netip.Prefix) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, p := range translatedPrefixes {
		if b := ip.AsSlice(); p.Contains(ip) && b[12] != 0 {
			ip = netip.AddrFrom4([4]byte(b[12:]))
		}
	}
	if ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() {
		return fmt.Errorf("%s is a link-local address, which is never called", ip)
	}
	for _, p := range allowedPrefixes {
		if p.Contains(ip) {
			return nil
		}
	}
	if len(allowedPrefixes) == 0 {
		return nil
	}
	return fmt.Errorf("%s is not in a network that --http-allow allows", ip)
}

// request sends a body to a handler and reads the reply. A fault without a code means that ctx has
// ended.
func (r *Runner) request(ctx context.Context, b Batch, header http.Header, body []byte) (int, http.Header, []byte, *runFault) {
	timeout := r.timeout(b.Handler)
	timeoutCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(timeout, func() { time.AfterFunc(lastReplyWait, cancel) }).Stop()
	method := cmp.Or(b.Handler.Method, http.MethodPost)
	brokenFault := func(err error) *runFault {
		switch {
		case ctx.Err() != nil:
			return &runFault{}
		case timeoutCtx.Err() != nil:
			return &runFault{code: codeTimeout, text: fmt.Sprintf("%s took longer than %v", method, timeout)}
		}
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the URL may contain a password
		}
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return faultOf(codeConnection, err)
		}
		return &runFault{code: codeConnection, text: err.Error()}
	}
	req, err := http.NewRequestWithContext(timeoutCtx, method, b.Handler.Body, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, brokenFault(err)
	}
	req.Header = header
	header.Set("Content-Type", "application/octet-stream")
	header.Set("User-Agent", "serverlessd")
	header.Set("job-type", b.Type)
	res, err := r.httpClient.Do(req)
	if err != nil {
		return 0, nil, nil, brokenFault(err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols { // what follows is not a reply, and no deadline would end the read
		return res.StatusCode, res.Header, nil, nil
	}
	reply, err := io.ReadAll(io.LimitReader(res.Body, r.options.MaxOutput+1))
	if err != nil {
		return 0, nil, nil, brokenFault(err)
	}
	if int64(len(reply)) > r.options.MaxOutput {
		return 0, nil, nil, &runFault{code: codeOutput, text: fmt.Sprintf("the reply has more than %d bytes", r.options.MaxOutput)}
	}
	return res.StatusCode, res.Header, reply, nil
}

// outcomeOfReply returns the outcome that a status and the headers of a reply stand for.
func (r *Runner) outcomeOfReply(status int, header http.Header) job.Outcome {
	o := job.Outcome{Status: status, RetryAfter: retryAfter(header.Get("Retry-After"), time.Now(), r.options.RetryFor)}
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		o.Retry = true
	}
	return o
}

// retryAfter parses a Retry-After header, which has seconds or a date. It returns how long to wait,
// but not more than limit, or 0 if the header is invalid.
func retryAfter(header string, now time.Time, limit time.Duration) time.Duration {
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		return max(job.MinRetryDelay, min(time.Duration(n)*time.Second, limit))
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(job.MinRetryDelay, min(at.Sub(now), limit))
	}
	return 0
}

// runRequests runs a batch with one request for each job.
func (r *Runner) runRequests(ctx context.Context, b Batch, to Reporter) error {
	for i, j := range b.Jobs {
		if !b.mayBegin(ctx) {
			return nil
		}
		to.Started(i)
		start := time.Now()
		o, fault := r.runRequest(ctx, b, j)
		if fault != nil {
			return fault.host
		}
		o.Wall = time.Since(start)
		to.Ended(i, o)
	}
	return nil
}

// runRequest runs a job. A fault means that the job has not ended: it could not begin on this host,
// or ctx has ended.
func (r *Runner) runRequest(ctx context.Context, b Batch, j Job) (outcome job.Outcome, unended *runFault) {
	header := make(http.Header, 8)
	header.Set("job-id", string(j.ID))
	header.Set("job-try", strconv.Itoa(j.Tries))
	status, replyHeader, reply, fault := r.request(ctx, b, header, append(bytes.Clone(j.Payload), '\n'))
	switch {
	case fault == nil:
	case fault.code == "":
		return outcome, fault
	default:
		return fault.outcome(), nil
	}
	outcome = r.outcomeOfReply(status, replyHeader)
	if outcome.Data = reply; !bytes.Contains(reply, []byte("J: ")) {
		return outcome, nil
	}
	outcome.Data = nil
	var jobs followLines
	for l := range bytes.Lines(reply) {
		if rest, ok := cutFollow(bytes.TrimSuffix(l, []byte("\n"))); !ok {
			outcome.Data = append(outcome.Data, l...)
		} else if jobs.count() == r.options.MaxLines {
			return r.tooManyLines().outcome(), nil
		} else {
			jobs.add(rest, r.options.MaxLineBytes)
		}
	}
	outcome.Lines, outcome.BadLines = jobs.lines, jobs.badLines
	return outcome, nil
}

func (r *Runner) tooManyLines() runFault {
	return runFault{code: codeLines, text: fmt.Sprintf("the reply has more than %d J: lines", r.options.MaxLines)}
}

// runBatch runs a batch with one request.
func (r *Runner) runBatch(ctx context.Context, b Batch, to Reporter) error {
	var body []byte
	for i, j := range b.Jobs {
		to.Started(i)
		body = append(append(body, j.Payload...), '\n')
	}
	start := time.Now()
	header := make(http.Header, 8)
	header.Set("job-count", strconv.Itoa(len(b.Jobs)))
	status, replyHeader, reply, fault := r.request(ctx, b, header, body)
	if fault != nil && fault.code == "" {
		return fault.host
	}
	wall := time.Since(start)
	var outcomes []job.Outcome
	if code, _ := job.CodeOf(status); fault != nil {
		outcomes = slices.Repeat([]job.Outcome{fault.outcome()}, len(b.Jobs))
	} else if code != job.CodeOK {
		outcomes = slices.Repeat([]job.Outcome{r.outcomeOfReply(status, replyHeader)}, len(b.Jobs))
	} else {
		outcomes = r.parseReply(reply, replyHeader, len(b.Jobs))
	}
	for i, o := range outcomes {
		o.Wall = wall
		to.Ended(i, o)
	}
	return nil
}

// parseReply parses the reply to a batch of n jobs, which has a line "STATUS[ data]" for each job,
// in order. J: lines belong to the status line after them.
func (r *Runner) parseReply(reply []byte, header http.Header, n int) []job.Outcome {
	outcomes := make([]job.Outcome, 0, n)
	var jobs followLines
	var fault *runFault
	for l := range bytes.Lines(reply) {
		l = bytes.TrimSuffix(l, []byte("\n"))
		if rest, ok := cutFollow(l); ok {
			if jobs.count() == r.options.MaxLines {
				lineFault := r.tooManyLines()
				fault = &lineFault
				break
			}
			jobs.add(rest, r.options.MaxLineBytes)
			continue
		}
		if len(outcomes) == n || bytes.HasPrefix(l, []byte("#")) {
			continue
		}
		number, data, ok := status(bytes.TrimSuffix(l, []byte("\r")))
		if !ok {
			fault = &runFault{code: codeBadResponse, text: fmt.Sprintf("line %.100q of the reply is not a status, or a status and data", l)}
			break
		}
		o := r.outcomeOfReply(number, header)
		o.Data, o.Lines, o.BadLines = bytes.Clone(data), jobs.lines, jobs.badLines
		outcomes = append(outcomes, o)
		jobs = followLines{}
	}
	if fault == nil {
		fault = &runFault{code: codeNoResponse, text: fmt.Sprintf("the reply to %d jobs has %d statuses", n, len(outcomes))}
	}
	if len(outcomes) > 0 { // lines after the last status belong to no job
		outcomes[len(outcomes)-1].BadLines += jobs.count()
	}
	for len(outcomes) < n {
		outcomes = append(outcomes, fault.outcome())
	}
	return outcomes
}
