package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gloom/broker"
	"gloom/broker/settings"
)

// withTokens gives a broker a token file.
func withTokens(t *testing.T, lines ...string) func(o *settings.Options) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *settings.Options) { o.TokenFile = path }
}

// TestWorkerGetsAllowedTypes: a worker that serves several types gets jobs of the types that its
// token allows, with headers if it asked for headers.
func TestWorkerGetsAllowedTypes(t *testing.T) {
	t.Parallel()
	s := startServer(t, withTokens(t, "any submit,work", "mails work mail-*,news"))
	submitter, worker := dial(t, s.SubmitAddr()), dial(t, s.WorkerAddr())
	submitter.send(`{"action":"hello","token":"any"}`)
	submitter.wantFrame("ok", true)
	submit := func(id, typ, fields string) {
		t.Helper()
		submitter.send(`{"action":"submit","id":%q,"type":%q,"body":1%s}`, id, typ, fields)
		submitter.wantFrame("ok", true)
	}
	submit("1", "thumb", "")
	submit("2", "mail-a", `,"headers":{"k":"v"}`)
	submit("3", "mail-b", `,"priority":9`)
	submit("4", "news", "")
	worker.send(`{"action":"hello","token":"mails"}`)
	worker.wantFrame("ok", true)
	worker.send(`{"action":"join","types":["thumb","other"]}`)
	worker.wantFrame("error", "forbidden")
	worker.send(`{"action":"join","types":["thumb","*"],"except":["news"],"headers":true}`)
	worker.wantFrame("ok", true)
	worker.wantFrame("id", "3")
	worker.send(`{"action":"respond","body":1}`)
	worker.wantFrame("ok", true)
	if m := worker.wantFrame("id", "2"); m["headers"] == nil || m["type"] != "mail-a" {
		t.Errorf("the job came as %v", m)
	}
	worker.send(`{"action":"release","delay_ms":60000}`)
	worker.wantFrame("ok", true)
	submitter.wantFrame("id", "3")
	submitter.send(`{"action":"change","id":"2","delay_ms":0,"priority":3}`)
	submitter.wantFrame("ok", true)
	worker.wantFrame("id", "2")
	submitter.send(`{"action":"change","id":"2","priority":3}`)
	submitter.wantFrame("error", "invalid_state")
	worker.send(`{"action":"respond","body":1}`)
	worker.wantFrame("ok", true)
	submitter.wantFrame("id", "2")
	submitter.send(`{"action":"cancel","id":"1"}`) // no worker serves the type of job 1
	submitter.wantFrame("ok", true)
}

// TestGroupRuleHoldsJobBack: a job waits while a rule of its group holds it back, and is handed out
// after a change of its groups. A group beyond the limit is refused.
func TestGroupRuleHoldsJobBack(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *settings.Options) { o.MaxGroups = 2 })
	submitter, worker := dial(t, s.SubmitAddr()), dial(t, s.WorkerAddr())
	s.Hub().Do(func(core *broker.Broker, now int64) []broker.Effect {
		effects, refusal := core.Configure(now, &broker.Settings{Rules: []broker.RuleInfo{{Pattern: []byte("held-*"), Rule: broker.Rule{Concurrency: 0}}}})
		if refusal != nil {
			t.Error(refusal)
		}
		return effects
	})
	worker.send(`{"action":"join","type":"t","prefetch":2}`)
	worker.wantFrame("ok", true)
	submitter.send(`{"action":"submit","id":"a","type":"t","body":1,"groups":["held-1","free"]}`)
	submitter.wantFrame("ok", true)
	submitter.send(`{"action":"submit","id":"b","type":"t","body":1,"groups":["another"]}`)
	submitter.wantFrame("error", "overloaded")
	submitter.send(`{"action":"submit","id":"c","type":"t","body":1,"groups":["free"]}`)
	submitter.wantFrame("ok", true)
	worker.wantFrame("id", "c")
	submitter.send(`{"action":"change","id":"a","groups":[]}`)
	submitter.wantFrame("ok", true)
	worker.wantFrame("id", "a")
}

// TestRefusedJoinChangesNothing: a refused join with prefetch changes nothing, so the worker's answers still
// need no id.
func TestRefusedJoinChangesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(o *settings.Options) { o.MaxTypes = 1 })
	submitter, worker := dial(t, s.SubmitAddr()), dial(t, s.WorkerAddr())
	worker.send(`{"action":"join","type":"t"}`)
	worker.wantFrame("ok", true)
	_, _ = worker.Write(append(frame(`{"action":"join","type":"one too many","prefetch":5}`), frame(`{"action":"respond","body":1}`)...))
	worker.wantFrame("error", "overloaded")
	worker.wantFrame("error", "invalid_state")
	submitter.send(`{"action":"submit","id":"j","type":"t","body":1}`)
	submitter.wantFrame("ok", true)
	worker.wantFrame("id", "j")
	worker.send(`{"action":"respond","body":2}`)
	worker.wantFrame("ok", true)
	submitter.wantFrame("id", "j")
}

// TestHelloWithBadValueIsRefused: a hello with a good token and a bad value is refused with a reason,
// and another hello may be sent. With a wrong token it is refused like any hello with a wrong
// token.
func TestHelloWithBadValueIsRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, withTokens(t, "good submit"))
	p := dial(t, s.SubmitAddr())
	p.send(`{"action":"hello","token":"good","heartbeat_ms":5}`)
	p.wantFrame("error", "invalid_value")
	p.send(`{"action":"hello","token":"good","heartbeat_ms":5000}`)
	p.wantFrame("ok", true)
	for _, hello := range []string{`{"action":"hello","token":"wrong","heartbeat_ms":5}`, `{"action":"hello","heartbeat_ms":5}`} {
		p := dial(t, s.SubmitAddr())
		p.send("%s", hello)
		p.wantFrame("error", "unauthorized")
		if m, err := p.next(); err == nil {
			t.Errorf("%s: still open: %v", hello, m)
		}
	}
}
