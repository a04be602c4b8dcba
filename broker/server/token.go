package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gloom/wire"
)

// tokenDelay is how long the refusal of a wrong token is held back.
const tokenDelay = time.Second

// scope is what a token allows.
type scope uint8

const (
	submit scope = 1 << iota
	work
	admin
)

var scopeNames = []struct {
	name string
	scope
}{{"submit", submit}, {"work", work}, {"admin", admin}}

func (s scope) String() string {
	for _, n := range scopeNames {
		if n.scope == s {
			return n.name
		}
	}
	return fmt.Sprintf("scope(%d)", uint8(s))
}

// grant is one line of the token file.
type grant struct {
	hash   [sha256.Size]byte
	scopes scope
	types  []wire.Pattern
	all    bool   // it covers any type
	scope  uint64 // the same for the same types
}

func (g *grant) covers(typ string) bool {
	return g.all || slices.ContainsFunc(g.types, func(p wire.Pattern) bool { return p.Fits(typ) })
}

// coversName is covers for a name as the core has it.
func (g *grant) coversName(typ []byte) bool { return g.covers(wire.Value(typ)) }

// tokens are the grants in force. Without a file none is asked for.
type tokens struct {
	file   string
	grants atomic.Pointer[[]grant]
}

func (t *tokens) required() bool { return t.file != "" }

// load reads the file again; the grants in force stay when it cannot be read.
func (t *tokens) load() error {
	if t.file == "" {
		return nil
	}
	data, err := os.ReadFile(t.file)
	if err != nil {
		return err
	}
	g, err := parseTokens(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path.Clean(t.file), err)
	}
	t.grants.Store(&g)
	return nil
}

// parseTokens reads lines of TOKEN SCOPES [TYPES]. A # at the beginning of a
// line or behind white space begins a comment; elsewhere it is a character like
// any other, of a token too.
func parseTokens(data []byte) ([]grant, error) {
	var out []grant
	sc := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		if i := slices.IndexFunc(f, func(s string) bool { return s[0] == '#' }); i >= 0 {
			f = f[:i]
		}
		if len(f) == 0 {
			continue
		}
		if len(f) < 2 || len(f) > 3 {
			return nil, fmt.Errorf("line %d: want TOKEN SCOPES [TYPES], got %d fields", n, len(f))
		}
		g := grant{hash: sha256.Sum256([]byte(f[0])), all: true}
		for _, name := range strings.Split(f[1], ",") {
			sc, ok := scopeNamed(name)
			if !ok {
				return nil, fmt.Errorf("line %d: unknown scope %q, want submit, work or admin", n, name)
			}
			g.scopes |= sc
		}
		if len(f) == 3 {
			names := strings.Split(f[2], ",")
			for _, name := range names {
				g.types = append(g.types, wire.NewPattern(wire.Canonical(nil, name)))
			}
			of := sha256.Sum256([]byte(f[2]))
			g.all, g.scope = slices.Contains(names, "*"), binary.LittleEndian.Uint64(of[:])
		}
		out = append(out, g)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

func scopeNamed(name string) (scope, bool) {
	for _, n := range scopeNames {
		if n.name == name {
			return n.scope, true
		}
	}
	return 0, false
}

// find returns what a token grants, or nil. It compares with every token, by
// hash, so that its time tells nothing.
func (t *tokens) find(token []byte) *grant {
	h := sha256.Sum256(token)
	var found *grant
	grants := *t.grants.Load()
	for i := range grants {
		if subtle.ConstantTimeCompare(grants[i].hash[:], h[:]) == 1 {
			found = &grants[i]
		}
	}
	if len(token) == 0 {
		return nil
	}
	return found
}

// tokenFailed counts and logs a missing or wrong token.
func (s *Server) tokenFailed(peer string) {
	s.unauthorized.Add(1)
	s.log.Warn().Str("peer", peer).Msg("a missing or unknown token was refused")
}

// Authorize judges a token for the HTTP side: known, and allowed to administer.
// Without tokens everybody may. It takes its time over a wrong one, unless ctx
// is done.
func (s *Server) Authorize(ctx context.Context, token, peer string) (known, allowed bool) {
	if !s.tokens.required() {
		return true, true
	}
	g := s.tokens.find([]byte(token))
	if g == nil {
		s.tokenFailed(peer)
		if token != "" {
			select {
			case <-ctx.Done():
			case <-time.After(tokenDelay):
			}
		}
		return false, false
	}
	return true, g.scopes&admin != 0
}
