package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-json"
)

// api speaks with the operators' side of a broker.
type api struct {
	addr  string // as it was given
	base  string // of URLs
	token string
	http  *http.Client
}

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

func (l *link) api() (*api, error) {
	conf, err := l.tlsConfig()
	if err != nil {
		return nil, err
	}
	a := &api{addr: l.http, token: l.token, base: "http://"}
	transport := &http.Transport{TLSClientConfig: conf}
	if conf != nil {
		a.base = "https://"
	}
	path, unix := strings.CutPrefix(l.http, "unix:")
	switch {
	case l.http == "":
		return nil, usage("--http-addr is empty: this needs the broker's address for operators")
	case unix:
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		a.base += "localhost"
	default:
		host, port, err := net.SplitHostPort(l.http)
		if err != nil || port == "" {
			return nil, usage("--http-addr %q: want host:port or unix:/path", l.http)
		}
		if host == "" {
			host = "127.0.0.1"
		}
		a.base += net.JoinHostPort(host, port)
	}
	a.http = &http.Client{Transport: transport, Timeout: requestTimeout}
	return a, nil
}

// refusal is the broker's reply that is no success.
type refusal struct {
	Status int    `json:"-"`
	Code   string `json:"error"`
	Reason string `json:"reason"`
}

func (r *refusal) Error() string {
	if r.Reason == "" {
		return r.Code
	}
	return r.Reason
}

// do sends a request and decodes the reply; in and out may be nil.
func (a *api) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return a.notReached(ctx, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return a.notReached(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		return a.refused(resp, data)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("the reply of %s to %s %s makes no sense: %w", a.addr, method, path, err)
	}
	return nil
}

func (a *api) notReached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	f := faultf(exitUnreachable, "no broker reached at %s, its address for operators: %s", a.addr, cause(err))
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return f.advise("the broker does not speak TLS here; leave --tls away")
	case strings.Contains(err.Error(), "malformed HTTP"):
		return f.advise("this may be the address for submitters or workers, or want TLS: --http-addr, --tls")
	}
	return f.advise("%s", reachHint(err, " --http-addr names another address"))
}

func (a *api) refused(resp *http.Response, data []byte) error {
	r := &refusal{Status: resp.StatusCode}
	if json.Unmarshal(data, r) != nil || r.Code == "" {
		r.Code = fmt.Sprintf("%s answers %s: %.200s", a.addr, resp.Status, bytes.TrimSpace(data))
	}
	f := &fault{code: exitFailed, err: r}
	switch {
	case r.Code == "unauthorized":
		return (&fault{code: exitDenied, err: r}).advise("give a token that the broker knows: --token or GLOOM_TOKEN")
	case r.Code == "forbidden":
		return (&fault{code: exitDenied, err: r}).advise("the token's line in the broker's token file must say admin")
	case r.Code == "forbidden_host":
		return &fault{code: exitDenied, err: r}
	case resp.StatusCode == http.StatusBadRequest && strings.Contains(string(data), "HTTPS server"):
		f.code = exitUnreachable
		return f.advise("the broker wants TLS: --tls")
	case resp.StatusCode == http.StatusBadRequest:
		f.code = exitUsage
	}
	return f
}

// status tells the reply's status if err is a refusal, else 0.
func status(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return 0
}

// segment makes a part of a path of a name, whatever is in it.
func segment(s string) string {
	e := url.PathEscape(s)
	if e == "." || e == ".." {
		return strings.ReplaceAll(e, ".", "%2E")
	}
	return e
}

// page is what listings reply with.
type page struct {
	Items []json.RawMessage `json:"items"`
	Next  *int              `json:"next"`
}

// pageSize is the most that a broker gives at once.
const pageSize = 1000

// list calls fn for up to most items of a listing, as they were sent; more
// tells that there would have been others.
func (a *api) list(ctx context.Context, path string, most int, fn func(item json.RawMessage) error) (more bool, err error) {
	cursor := ""
	for n := 0; ; {
		var p page
		if err := a.do(ctx, http.MethodGet, path+"?limit="+strconv.Itoa(min(pageSize, most-n))+cursor, nil, &p); err != nil {
			return false, err
		}
		for _, item := range p.Items {
			if err := fn(item); err != nil {
				return false, err
			}
		}
		n += len(p.Items)
		if p.Next == nil {
			return false, nil
		}
		if n >= most {
			return true, nil
		}
		cursor = "&cursor=" + strconv.Itoa(*p.Next)
	}
}
