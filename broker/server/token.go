package server

import (
	"context"

	"gloom/broker/guard"
)

// A token can have these scopes, which are listed in the order of scopeNames.
const (
	submitScope guard.Scope = 1 << iota
	workScope
	adminScope
	watchScope
)

// ScopeSubmit, ScopeAdmin and ScopeWatch are the scopes that HTTP requests need: to submit jobs,
// to change something, and to watch. A token with the scope admin may watch, too.
const (
	ScopeSubmit = submitScope
	ScopeAdmin  = adminScope
	ScopeWatch  = watchScope | adminScope
)

var scopeNames = []string{"submit", "work", "admin", "watch"}

// recordBadToken counts and logs a missing or wrong token.
func (s *Server) recordBadToken(peer string) {
	s.unauthorized.Add(1)
	s.log.Warn().Str("peer", peer).Msg("a missing or unknown token was refused")
}

// Authorize checks the token of an HTTP request and returns its grant, or nil if no token is
// required. It refuses a wrong token after a delay, unless ctx is done, so that guessing takes
// time.
func (s *Server) Authorize(ctx context.Context, token, peer string) (grant *guard.Grant, known bool) {
	if !s.tokens.Required() {
		return nil, true
	}
	if grant = s.tokens.Find([]byte(token)); grant == nil {
		s.recordBadToken(peer)
		if token != "" {
			guard.DelayRefusal(ctx)
		}
	}
	return grant, grant != nil
}
