package door

import (
	"fmt"
	"math/bits"
	"net/http"
	"slices"
	"strings"

	"gloom/broker/guard"
)

// Requirements says which requests are admitted.
type Requirements struct {
	// Methods are the methods that the path allows; if there are none, the path does not exist.
	// Where GET is allowed, HEAD is allowed, too, unless Mutates is set.
	Methods []string
	// Scope is the scope that the request's token must have, one of those given to Listen.
	Scope guard.Scope
	// Public admits anybody, with any Host and beyond the limit on connections: for paths that
	// reveal nothing about jobs.
	Public bool
	// AnyHost allows any Host in the requests of clients that need no token, because programs may
	// be configured with any name.
	AnyHost bool
	// Mutates says that the request changes something, even if it is a GET. It is then checked like
	// a POST.
	Mutates bool
}

// Refusal is the reason why a request is not admitted. As JSON it is the answer of a daemon.
type Refusal struct {
	Status int    `json:"-"`
	Code   string `json:"error"`
	Reason string `json:"reason"`          // for people
	Field  string `json:"field,omitempty"` // the header or field concerned, "" for none
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Reason }

func newRefusal(status int, code, field, format string, args ...any) *Refusal {
	return &Refusal{status, code, fmt.Sprintf(format, args...), field}
}

// Admit authorizes a request. The grant says what its token allows; nil, without a token file,
// allows everything. An error is a *Refusal, and the headers of its answer are set. An unknown
// token is refused after a delay.
func (d *Door) Admit(w http.ResponseWriter, r *http.Request, n Requirements) (grant *guard.Grant, err error) {
	if isOverLimit(r) && !n.Public {
		w.Header().Set("Connection", "close")
		return nil, newRefusal(http.StatusServiceUnavailable, "overloaded", "", "more than %d connections are open (%s)", d.MaxConns(), d.limitOption)
	}
	checked := r
	switch reads := r.Method == http.MethodGet || r.Method == http.MethodHead; {
	case len(n.Methods) == 0:
		return nil, newRefusal(http.StatusNotFound, "not_found", "", "there is no path %.200q", guard.AskedPath(r))
	case !slices.Contains(n.Methods, r.Method) && (r.Method != http.MethodHead || n.Mutates || !slices.Contains(n.Methods, http.MethodGet)):
		methods := strings.Join(n.Methods, ", ")
		if !n.Mutates {
			methods = strings.Replace(methods, http.MethodGet, "GET, HEAD", 1)
		}
		w.Header().Set("Allow", methods)
		return nil, newRefusal(http.StatusMethodNotAllowed, "method_not_allowed", "", "%.20s is not allowed for %.200s; use %s", r.Method, guard.AskedPath(r), methods)
	case n.Public:
		return nil, nil
	case reads && n.Mutates:
		checked = new(*r)
		checked.Method = http.MethodPost
	}
	grant, ok := d.grantOf(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return nil, newRefusal(http.StatusUnauthorized, "unauthorized", "", "%s; send Authorization: Bearer TOKEN", guard.WhyTokenRefused(guard.Bearer(r.Header.Get("Authorization"))))
	}
	if grant == nil && d.options.TrustLocal && !isLocal(r) {
		return nil, newRefusal(http.StatusForbidden, "forbidden", "", "there is no password: only clients on this host are served")
	}
	// A web page could point a name of its own at our address (DNS rebinding).
	if grant == nil && !n.AnyHost && !d.options.IsOwnHost(r.Host, d.options.Addr, d.Addr()) {
		return nil, newRefusal(http.StatusForbidden, "forbidden_host", "Host", "the Host %.200q does not name this daemon; use localhost, the address that it listens on, the host's name, or a name given with --host", r.Host)
	}
	if err := d.crossOrigin.Check(checked); err != nil {
		return nil, newRefusal(http.StatusForbidden, "forbidden_origin", "Origin", "the request comes from a page of another site: %v", err)
	}
	if guard.IsCrossSite(r) {
		return nil, newRefusal(http.StatusForbidden, "forbidden_origin", "Sec-Fetch-Site", "the request comes from a page of another site")
	}
	if !grant.Has(n.Scope) {
		return nil, newRefusal(http.StatusForbidden, "forbidden", "", "the token lacks the scope %s", d.tokens.Scopes[bits.TrailingZeros(uint(n.Scope))])
	}
	d.limiter.protect(r)
	return grant, nil
}
