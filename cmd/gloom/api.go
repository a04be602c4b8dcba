package main

import (
	"bytes"
	"cmp"
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
	"syscall"
	"time"

	"github.com/goccy/go-json"

	"gloom/broker/admin/api"
	gloom "gloom/clients/go"
	"gloom/cmd/gloom/doors"
	"gloom/cmd/internal/cli"
)

// operatorClient is a client of the HTTP interface for operators of a broker or a door.
type operatorClient struct {
	flag     string // the flag that names the address
	addr     string // the address as it was given
	baseURL  string // scheme, host and port, before the path
	token    string
	http     *http.Client
	err      error // error in the options, with which every request fails
	detected bool  // set once it is known whether a broker or a door answers
	bulk     bool  // the request changes many jobs
}

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

func (c *connection) operator() *operatorClient {
	if c.cachedOperator != nil {
		return c.cachedOperator
	}
	given, o := c.httpAddr, &operatorClient{flag: "--http-addr", baseURL: "http://", token: c.token, detected: true}
	if c.doorAddr != "" {
		given, o.flag, o.detected = c.doorAddr, "--door", false
	}
	c.cachedOperator = o
	addr, secure := strings.CutPrefix(strings.TrimSuffix(given, "/"), "https://")
	addr = strings.TrimPrefix(addr, "http://")
	o.addr = addr
	c.tls = c.tls || secure
	transport := &http.Transport{}
	var conf *tls.Config
	if conf, o.err = c.tlsConfig(); conf != nil {
		transport.DialTLSContext = cli.DialTLS(conf)
		o.baseURL = "https://"
	}
	if path, unix := strings.CutPrefix(addr, "unix:"); unix {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		o.baseURL = "http://localhost" // a unix socket has no TLS
	} else if host, port, err := net.SplitHostPort(addr); addr == "" {
		o.err = cli.Usagef("%s is empty: this needs the broker's address for operators", o.flag)
	} else {
		addr = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
		if !strings.Contains(given, "://") {
			addr = strings.ReplaceAll(addr, "%", "%25") // before a zone, as in fe80::1%eth0
		}
		_, badPort := net.LookupPort("tcp", port)
		u, badURL := url.Parse(o.baseURL + addr)
		if cmp.Or(err, badPort, badURL) != nil || port == "" || (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() != o.baseURL+addr {
			o.err = cli.Usagef("%s %q: want host:port, http://host:port, https://host:port or unix:/path", o.flag, given)
		}
		o.baseURL += addr
	}
	o.http = &http.Client{Transport: transport, Timeout: requestTimeout}
	return o
}

// detectDoor finds out which daemon answers, and sends its requests through its Door.
func (o *operatorClient) detectDoor(ctx context.Context) error {
	o.detected = true
	var status json.RawMessage
	err := o.call(ctx, http.MethodGet, "/v1/status", nil, &status)
	if err == nil {
		var door *doors.Door
		if door, err = doors.ForStatus(status, o.http.Transport, o.baseURL, o.token); door != nil {
			o.http.Transport = door
		}
	}
	o.detected = err == nil
	return err
}

// call sends a request and decodes the reply; in and out may be nil.
func (o *operatorClient) call(ctx context.Context, method, path string, in, out any) error {
	if o.err != nil {
		return o.err
	}
	if !o.detected {
		if err := o.detectDoor(ctx); err != nil {
			return err
		}
	}
	req, err := api.NewRequest(ctx, method, o.baseURL+path, o.token, in)
	if err != nil {
		return err
	}
	resp, err := o.http.Do(req)
	if err != nil {
		return o.unreachableError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols { // what follows is no answer, and reading it might never end
		return o.refusalError(resp, nil)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, doors.MaxAnswer))
	if err != nil {
		return o.unreachableError(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		return o.refusalError(resp, data)
	}
	if out == nil {
		return nil
	}
	return decode(data, out)
}

// decode decodes an answer of a broker.
func decode(data []byte, out any) error {
	if json.Unmarshal(data, out) != nil {
		return cli.Failf(cli.ExitFailed, "cannot decode the answer: %.60q", data).
			SetHint("is this gloomd, and the same version as gloom? --http-addr names another address")
	}
	return nil
}

// doorHints changes hints about a broker's address into hints about the daemon of a door.
var doorHints = strings.NewReplacer("gloomd", "the daemon", "the broker", "the daemon", "a broker", "a daemon")

// words returns a text about a broker, or the same about the daemon of a door.
func (o *operatorClient) words(text string) string {
	if o.flag == "--door" {
		return doorHints.Replace(text)
	}
	return text
}

func (o *operatorClient) unreachableError(ctx context.Context, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if o.bulk && o.flag != "--door" { // a door has counted
		err = doors.WithCount(err, 0)
	}
	var cut *doors.CutError
	isCut := errors.As(err, &cut)
	if cause := context.Cause(ctx); cause != nil {
		if f := (*cli.Fault)(nil); isCut && errors.As(cause, &f) {
			return cli.Failf(f.Code, "%w; %v", f.Err, cut)
		}
		return cause
	}
	if isCut {
		return cli.Failf(exitUnreachable, "the connection to %s broke: %s; %v", o.addr, o.words(connectionCause(cut.Err)), cut).
			SetHint("the same command changes those that are left")
	}
	if f := (*cli.Fault)(nil); errors.As(err, &f) { // the door does not support the request
		return f
	}
	reason, hint := o.words(connectionCause(err)), o.words(unreachableHint(err, " "+o.flag+" names another address"))
	if o.flag == "--door" {
		return cli.Failf(exitUnreachable, "nothing reached at %s: %s", o.addr, reason).SetHint("%s", hint)
	}
	switch {
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		reason, hint = "it does not speak TLS", notTLS
	case strings.Contains(err.Error(), "malformed HTTP"):
		reason, hint = "this is not an HTTP server", "this may be the address for submitters or workers, or need TLS: --http-addr, --tls"
	}
	return cli.Failf(exitUnreachable, "no broker reached at %s, its address for operators: %w", o.addr, unreachableCause(reason)).SetHint("%s", hint)
}

// refusalError returns the fault for a reply that is not a success.
func (o *operatorClient) refusalError(resp *http.Response, data []byte) error {
	r := &refusal{}
	if json.Unmarshal(data, r) != nil || r.Code == "" {
		r.Code = fmt.Sprintf("%s answers %s: %.200s", o.addr, resp.Status, bytes.TrimSpace(data))
	}
	r.Status = resp.StatusCode
	r.Reason, _, _ = strings.Cut(r.Reason, "; send Authorization: ") // for other programs
	f := &cli.Fault{Code: cli.ExitFailed, Err: r, Hint: hintForCode(gloom.Code(r.Code))}
	switch {
	case r.Code == "unauthorized":
		f.Code = exitDenied
	case r.Code == "forbidden":
		f.Code = exitDenied
		if f.Hint = "the token's line in the broker's token file must say " + scopeOf(resp.Request); o.flag == "--door" {
			f.Hint = "" // the reply says which scope is missing
		}
	case r.Code == "forbidden_host":
		f.Code = exitDenied
	case r.Status == http.StatusBadRequest && strings.Contains(string(data), "HTTPS server"):
		f.Code, f.Hint = exitUnreachable, "the broker needs TLS: --tls"
	case r.Status == http.StatusBadRequest:
		f.Code = cli.ExitUsage
	}
	f.Hint = o.words(f.Hint)
	return f
}

// scopeOf returns the scope that a request needs.
func scopeOf(r *http.Request) string {
	if r.Method == http.MethodGet {
		return "watch or admin"
	}
	return "admin"
}

// refusal is a reply of the broker that reports an error. Its text is the reason alone.
type refusal api.Error

func (r *refusal) Error() string { return cmp.Or(r.Reason, r.Code) }

// httpStatus returns the HTTP status if err is a refusal, otherwise 0.
func httpStatus(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.Status
	}
	return 0
}

// pageSize is the maximum number of items that a broker returns at once.
const pageSize = 1000

// eachItem calls fn for up to limit items of a listing; more reports whether there are others.
func eachItem[T any](ctx context.Context, o *operatorClient, path string, limit int, fn func(item T) error) (more bool, err error) {
	cursor := ""
	if !strings.Contains(path, "?") {
		path += "?"
	}
	for n := 0; ; {
		var p struct {
			api.List[T]
			Cursor *int   `json:"cursor"` // of ended jobs
			Place  string `json:"place"`  // of a door
		}
		if err := o.call(ctx, http.MethodGet, path+"&limit="+strconv.Itoa(min(pageSize, limit-n))+cursor, nil, &p); err != nil {
			return false, err
		}
		for _, item := range p.Items {
			if err := fn(item); err != nil {
				return false, err
			}
		}
		if next := cmp.Or(p.Next, p.Cursor); next != nil {
			p.Place = strconv.Itoa(*next)
		}
		n += len(p.Items)
		if p.Place == "" || n >= limit {
			return p.Place != "", nil
		}
		cursor = "&cursor=" + url.QueryEscape(p.Place)
	}
}

// listItems returns up to limit items of a listing.
func listItems[T any](ctx context.Context, o *operatorClient, path string, limit int) (items []T, more bool, err error) {
	more, err = eachItem(ctx, o, path, limit, func(item T) error {
		items = append(items, item)
		return nil
	})
	return items, more, err
}

// printOne requests a single item and prints it.
func printOne[T any](ctx context.Context, t *tool, path string, format func(*T) string) error {
	var x listItem[T]
	if err := t.conn.operator().call(ctx, http.MethodGet, path, nil, &x); err != nil {
		return err
	}
	return printItem(t, &x, format)
}

// printItem prints an item as text or, with --json, as it was sent.
func printItem[T any](t *tool, x *listItem[T], format func(*T) string) error {
	if t.json {
		return t.printJSON(x.raw)
	}
	_, err := t.stdout.WriteString(format(&x.value))
	return outputError(err)
}

func (t *tool) printJSON(raw json.RawMessage) error {
	_, err := fmt.Fprintf(t.stdout, "%s\n", oneLine(raw))
	return outputError(err)
}

// outputError explains a failure to write the output.
func outputError(err error) error {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	return fmt.Errorf("writing the output: %w", err)
}
