package server

import (
	"context"

	"gloom/broker/guard"
)

// What a token allows, in the order of scopeNames.
const (
	submit guard.Scope = 1 << iota
	work
	admin
)

var scopeNames = []string{"submit", "work", "admin"}

// tokenFailed counts and logs a missing or wrong token.
func (s *Server) tokenFailed(peer string) {
	s.unauthorized.Add(1)
	s.log.Warn().Str("peer", peer).Msg("a missing or unknown token was refused")
}

// Authorize judges a token for the HTTP side: known, and allowed to administer.
// Without tokens everybody may. It takes its time over a wrong one, unless ctx
// is done.
func (s *Server) Authorize(ctx context.Context, token, peer string) (known, allowed bool) {
	if !s.tokens.Required() {
		return true, true
	}
	g := s.tokens.Find([]byte(token))
	if g == nil {
		s.tokenFailed(peer)
		if token != "" {
			guard.Hold(ctx)
		}
		return false, false
	}
	return true, g.Scopes&admin != 0
}
