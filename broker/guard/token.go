package guard

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"gloom/wire"
)

// TokenDelay is the delay before a wrong token is refused. It slows down the guessing of
// tokens.
const TokenDelay = time.Second

// Scope is a set of scopes, one bit for each name that the token file may use.
type Scope uint8

// Grant is one line of the token file.
type Grant struct {
	Hash   [sha256.Size]byte // of the token
	Scopes Scope
	// AllTypes reports that the grant covers every type. TypesID is equal in grants that cover the
	// same types.
	AllTypes bool
	TypesID  uint64
	types    []wire.Pattern
}

// Has reports whether the grant includes one of the scopes. A nil grant includes all scopes.
func (g *Grant) Has(sc Scope) bool { return g == nil || g.Scopes&sc != 0 }

// Covers reports whether the grant covers a type. A nil grant covers all types.
func (g *Grant) Covers(typ string) bool {
	return g == nil || g.AllTypes || slices.ContainsFunc(g.types, func(p wire.Pattern) bool { return p.Matches(typ) })
}

// CoversName is like Covers, but takes a name in canonical form.
func (g *Grant) CoversName(typ []byte) bool { return g.Covers(wire.Value(typ)) }

// Tokens holds the grants in force. If File is "" and UseOnly was not called, no token is required.
type Tokens struct {
	// File is the path of a file with a line for each grant, or "".
	File string
	// Scopes are the names of the scopes, at most eight. The first name is Scope 1, the second
	// Scope 2, the third Scope 4, and so on.
	Scopes []string
	// AllowTypes allows a line to list the types that it covers.
	AllowTypes bool
	// UntypedScopes holds the scopes that always apply to all types. A line with only such scopes
	// must not list types.
	UntypedScopes Scope

	grants atomic.Pointer[[]Grant]
}

// Owner identifies the token of a connection; it is never 0.
func (g *Grant) Owner() uint64 { return binary.LittleEndian.Uint64(g.Hash[:]) | 1 }

// Required reports whether a token is required.
func (t *Tokens) Required() bool { return t.File != "" || t.grants.Load() != nil }

// UseOnly makes the given token the only valid token, with all scopes for all types. File must be
// "".
func (t *Tokens) UseOnly(token string) {
	t.grants.Store(&[]Grant{{Hash: sha256.Sum256([]byte(token)), Scopes: 1<<len(t.Scopes) - 1, AllTypes: true}})
}

// Len returns the number of grants in force.
func (t *Tokens) Len() int {
	if g := t.grants.Load(); g != nil {
		return len(*g)
	}
	return 0
}

// Load reads the file again. If that fails, the grants in force stay.
func (t *Tokens) Load() error {
	if t.File == "" {
		return nil
	}
	// The first reading of a pipe has taken its data, and another one may wait for ever.
	if info, err := os.Stat(t.File); t.grants.Load() != nil && err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		return fmt.Errorf("%s: is a pipe, which cannot be read again", t.File)
	}
	data, err := ReadFile(t.File)
	if err != nil {
		return err
	}
	g, err := t.parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", t.File, err)
	}
	t.grants.Store(&g)
	return nil
}

// OptionError returns an error of Reload as one of the option --token-file.
func (t *Tokens) OptionError(err error) error {
	var file *fs.PathError
	if errors.As(err, &file) {
		err = file.Err
	}
	return &OptionError{"token-file", t.File, strings.TrimPrefix(err.Error(), t.File+": ")}
}

// Reload reads tokens and, unless c is nil, certificates, for the first time or again. If
// reading fails, the old ones stay in force. A file without a token is not an error, but is
// logged.
func Reload(t *Tokens, c *Certificates, log zerolog.Logger) error {
	err := t.Load()
	if err == nil && t.Required() && t.Len() == 0 {
		log.Warn().Str("token_file", t.File).Msg("the token file holds no token: nobody can connect")
	}
	if c != nil {
		err = errors.Join(err, c.Load())
	}
	return err
}

// parse reads lines of the form TOKEN SCOPES [TYPES]. A # at the start of a line or after white
// space begins a comment; elsewhere it is an ordinary character, even in a token.
func (t *Tokens) parse(data []byte) ([]Grant, error) {
	var out []Grant
	lines := map[[sha256.Size]byte]int{}
	form, maxFields := "TOKEN SCOPES", 2
	if t.AllowTypes {
		form, maxFields = "TOKEN SCOPES [TYPES]", 3
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; sc.Scan(); n++ {
		f := strings.Fields(sc.Text())
		if i := slices.IndexFunc(f, func(s string) bool { return s[0] == '#' }); i >= 0 {
			f = f[:i]
		}
		if len(f) == 0 {
			continue
		}
		if len(f) < 2 || len(f) > maxFields {
			return nil, fmt.Errorf("line %d: want %s, got %d fields", n, form, len(f))
		}
		g := Grant{Hash: sha256.Sum256([]byte(f[0])), AllTypes: true}
		if before := lines[g.Hash]; before != 0 {
			return nil, fmt.Errorf("line %d: this token is on line %d already; give it all its scopes and types there", n, before)
		}
		lines[g.Hash] = n
		for _, name := range strings.Split(f[1], ",") {
			i := slices.Index(t.Scopes, name)
			if i < 0 {
				lastIndex := len(t.Scopes) - 1
				return nil, fmt.Errorf("line %d: unknown scope %q, want %s or %s", n, name, strings.Join(t.Scopes[:lastIndex], ", "), t.Scopes[lastIndex])
			}
			g.Scopes |= 1 << i
		}
		if len(f) == 3 {
			names := strings.Split(f[2], ",")
			for _, name := range names {
				g.types = append(g.types, wire.NewPattern(wire.Canonical(nil, name)))
			}
			typesHash := sha256.Sum256([]byte(f[2]))
			g.AllTypes, g.TypesID = slices.Contains(names, "*"), binary.LittleEndian.Uint64(typesHash[:])
			if g.Scopes&^t.UntypedScopes == 0 && !g.AllTypes {
				return nil, fmt.Errorf("line %d: %s applies to all types and cannot be limited to %q; leave the types out", n, f[1], f[2])
			}
		}
		out = append(out, g)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	return out, nil
}

// Find returns the grant of a token, or nil. It compares the token's hash with every grant's,
// so that the time it takes reveals nothing.
func (t *Tokens) Find(token []byte) *Grant {
	h := sha256.Sum256(token)
	var found *Grant
	grants := *t.grants.Load()
	for i := range grants {
		if subtle.ConstantTimeCompare(grants[i].Hash[:], h[:]) == 1 {
			found = &grants[i]
		}
	}
	if len(token) == 0 {
		return nil
	}
	return found
}

// Bearer returns the token in the value of an Authorization header, or "". The name of the scheme
// may be in any case.
func Bearer(header string) string {
	const scheme = "Bearer "
	if len(header) < len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(header[len(scheme):])
}

// WhyTokenRefused returns the reason why a token is refused.
func WhyTokenRefused[T string | []byte](token T) string {
	if len(token) == 0 {
		return "no token was sent"
	}
	return "this token is not known here"
}

// DelayRefusal waits for TokenDelay, or until ctx is done.
func DelayRefusal(ctx context.Context) {
	t := time.NewTimer(TokenDelay)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
