package server

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gloom/broker/settings"
)

// TestWrongTokensAreCounted: missing and wrong tokens are counted, and the connection is closed. A
// good token allows only what its scopes and types say.
func TestWrongTokensAreCounted(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("good submit mail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, func(o *settings.Options) { o.TokenFile = file })
	for i, first := range []string{
		`{"action":"ping"}`, `{"action":"hello"}`, `{"action":"hello","token":"bad"}`, `no json`,
		`{"action":"hello","token":"good","client":"` + strings.Repeat("x", maxHelloFrame) + `"}`,
	} {
		p := dial(t, s.SubmitAddr())
		p.send("%s", first)
		p.wantFrame("error", "unauthorized")
		if _, err := p.next(); err == nil {
			t.Errorf("%.80s: the connection is still open", first)
		}
		if n := s.Counts().UnauthorizedRequests; n != uint64(i+1) {
			t.Errorf("%.80s: %d are counted, want %d", first, n, i+1)
		}
	}
	// A peer that has not shown a token may not send a long frame: the frame would take memory that
	// other peers need for their frames.
	stranger := dial(t, s.SubmitAddr())
	_, _ = stranger.Write(binary.BigEndian.AppendUint32(nil, maxHelloFrame+1))
	stranger.wantFrame("error", "unauthorized")
	p := dial(t, s.SubmitAddr())
	p.send(`{"action":"hello","token":"good"}`)
	p.wantFrame("ok", true)
	p.send(`{"action":"submit","id":"a","type":"mail","body":1}`)
	p.wantFrame("ok", true)
	p.send(`{"action":"submit","id":"b","type":"other","body":1}`)
	p.wantFrame("error", "forbidden")
	w := dial(t, s.WorkerAddr())
	w.send(`{"action":"hello","token":"good"}`)
	w.wantFrame("ok", true)
	w.send(`{"action":"join","type":"mail"}`)
	w.wantFrame("error", "forbidden")
}
