package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

// confirm makes the person click on a button that must ask before it acts, and read the question.
// The first time the person leaves the dialog with Escape, and nothing may have happened.
func (p *pageUser) confirm(button, question, answer string, isUndone func() bool) {
	p.t.Helper()
	p.clickOn("button", button)
	p.await("dialog", question)
	p.pressKeys("\x1b")
	p.waitUntil("no dialog", func() bool { return len(p.find("dialog", "")) == 0 })
	if !isUndone() {
		p.t.Fatalf("%s was done though it was left", button)
	}
	p.clickOn("button", button)
	p.await("dialog", question)
	p.clickOn("button", answer)
	p.waitUntil("no dialog", func() bool { return len(p.find("dialog", "")) == 0 })
}

func (b *broker) count(route string) int {
	_, v := b.callAPI("GET", route, "")
	items, _ := v["items"].([]any)
	return len(items)
}

// TestPauseAndLimits changes a type.
func TestPauseAndLimits(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	wantPaused := func(want bool) {
		t.Helper()
		b.waitUntil("/v1/types/mail", func(v map[string]any) bool { return v["paused"] == want })
	}
	p := newPageUser(t)
	p.goTo(b.url("#/type/mail"))
	p.clickOn("button", "^Pause$")
	p.awaitText("mail is paused")
	wantPaused(true)
	p.clickOn("button", "^Undo$")
	wantPaused(false)
	p.await("button", "^Pause$")

	p.clickOn("button", "^Limits$")
	p.await("dialog", "Limits of mail")
	p.typeInto("spinbutton", "at a time", "-3")
	p.clickOn("button", "^Set$")
	p.await("dialog", "Limits of mail") // the dialog stays open, and says why
	p.typeInto("spinbutton", "at a time", "3")
	p.typeInto("spinbutton", "a second", "0.5")
	p.clickOn("button", "^Set$")
	p.waitUntil("no dialog", func() bool { return len(p.find("dialog", "")) == 0 })
	b.waitUntil("/v1/types/mail", func(v map[string]any) bool {
		return number(v, "limits", "concurrency") == 3 && v["limits"].(map[string]any)["rate"] == 0.5
	})
	p.awaitText(`of 3|3 at a time|at most 3|limit`)
	if err := b.Log.Await("mail"); err != nil {
		t.Error("what was done is not in the log")
	}
	for _, word := range []string{"pause", "limits"} {
		if !strings.Contains(b.Log.String(), word) {
			t.Errorf("the log does not have %q:\n%s", word, b.Log.String())
		}
	}
}

// TestCancelAndChange cancels and changes one job, and all matching jobs.
func TestCancelAndChange(t *testing.T) {
	t.Parallel()
	b := startBusyBroker(t)
	s := b.submitter()
	cancelled := make(chan error, 1)
	if err := s.SubmitFunc(b.ctx(), gloom.Job{ID: "mine", Type: "mail"}, func(_ gloom.Result, err error) { cancelled <- err }); err != nil {
		t.Fatal(err)
	}
	b.waitUntil("/v1/types/mail", func(v map[string]any) bool { return number(v, "queued") == 11 })
	p := newPageUser(t)
	p.Ignore(missingError)
	p.goTo(b.url("#/job/mine"))
	p.clickOn("button", "^Change$")
	p.await("dialog", "Change mine")
	p.typeInto("textbox", "Priority", "7")
	p.typeInto("textbox", "Groups", "a\nb <i>")
	p.clickOn("button", "^Change$")
	b.waitUntil("/v1/jobs/mine", func(v map[string]any) bool {
		return number(v, "priority") == 7 && fmt.Sprint(v["groups"]) == "[a b <i>]"
	})
	p.awaitText("b <i>")
	p.confirm("^Cancel$", "mine", "Cancel the job", func() bool { return b.count("/v1/jobs?id=mine") == 1 })
	select {
	case err := <-cancelled:
		if !errors.Is(err, gloom.ErrCancelled) {
			t.Errorf("the submitter is told %v", err)
		}
	case <-time.After(patience):
		t.Error("the submitter is not told")
	}
	p.goTo(b.url("#/job/mail-0"))
	p.confirm("^Cancel$", "mail-0", "Cancel the job", func() bool { return b.count("/v1/jobs?id=mail-0") == 1 })
	b.waitUntil("/v1/types/mail", func(v map[string]any) bool { return number(v, "ledger", "cancelled") == 2 })

	b.submitAcked(gloom.Job{ID: "x-1", Type: "mail"}, gloom.Job{ID: "x-2", Type: "mail"}, gloom.Job{ID: "x-3", Type: "mail", Delay: time.Hour})
	p.goTo(b.url("#/type/mail"))
	p.typeInto("textbox", "Part of the id", "x-")
	p.waitUntil("three jobs", func() bool { return len(p.rows("Jobs")) == 3 })
	p.confirm("Cancel all", "Cancel 3 jobs of mail", "Cancel 3 jobs", func() bool { return b.count("/v1/jobs?id=x-") == 3 })
	p.awaitText("3 jobs")
	if n := b.count("/v1/jobs?id=x-"); n != 0 {
		t.Errorf("%d of the three are left", n)
	}
	if n := b.count("/v1/jobs?id=mail-"); n < 10 {
		t.Errorf("of the others %d are left", n)
	}
}

// TestDeadLetters retries and discards dead letters.
func TestDeadLetters(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := start(t)
	stop := b.startWorker(&gloom.Worker{Type: "broken", Concurrency: 4, Handler: func(_ context.Context, j *gloom.Job) (any, error) {
		return nil, fmt.Errorf("reason of %s", j.ID)
	}})
	for i := range 8 {
		b.submitAcked(gloom.Job{ID: fmt.Sprint("d-", i), Type: "broken", Retries: gloom.NoRetries, Detach: true, Body: []byte(`{"big":90071992547409930001,"e":1e400}`)})
	}
	b.waitUntil("/v1/status", func(v map[string]any) bool { return number(v, "dead") == 8 })
	stop()
	countDead := func() int { return b.count("/v1/dead/broken") }
	p := newPageUser(t)
	p.goTo(b.url("#/dead/broken"))
	p.clickOn("link", "^d-5$")
	p.await("heading", "^d-5$")
	p.awaitText("90071992547409930001", "1e400", "reason of d-5")
	p.goTo(b.url("#/dead/broken"))
	p.await("heading", "^Dead letters of broken$")
	p.typeInto("textbox", "Part of the id", "d-5")
	p.waitUntil("one row", func() bool { return len(p.rows("Dead letters")) == 1 })
	p.clickOn("button", "^Retry$")
	p.awaitText("d-5 was retried")
	b.waitUntil("/v1/jobs/d-5", func(v map[string]any) bool { return v["state"] == "queued" })
	p.typeInto("textbox", "Part of the id", "")
	p.typeInto("textbox", "reason", "of d-2")
	p.waitUntil("one row", func() bool { return len(p.rows("Dead letters")) == 1 })
	p.confirm("^Discard$", "d-2", "Discard", func() bool { return countDead() == 7 })
	p.waitUntil("six dead letters", func() bool { return countDead() == 6 })
	p.typeInto("textbox", "reason", "of d-3")
	p.waitUntil("one row", func() bool { return len(p.rows("Dead letters")) == 1 })
	p.confirm("Discard all that match", "Discard 1 dead letter", "^Discard 1", func() bool { return countDead() == 6 })
	p.waitUntil("five dead letters", func() bool { return countDead() == 5 })
	p.goTo(b.url("#/dead"))
	p.confirm("^Retry all", "Retry 5 dead letters", "^Retry 5", func() bool { return countDead() == 5 })
	p.waitUntil("no dead letter", func() bool { return countDead() == 0 })
	b.waitUntil("/v1/types/broken", func(v map[string]any) bool { return number(v, "queued") == 6 })
	p.awaitNoText(`\bbroken\s+5`)
}

// TestRuleIsMadeAndRemoved makes a rule for groups, and removes it.
func TestRuleIsMadeAndRemoved(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.Ignore("status of 400")
	p.goTo(b.url("#/groups"))
	p.clickOn("button", "Add a rule")
	p.await("dialog", "rule")
	p.typeInto("textbox", "Groups", "ten*")
	before := p.pageText()
	p.clickOn("button", "^Set$")
	p.waitUntil("why there is no rule without a limit", func() bool { return p.pageText() != before && len(p.find("dialog", "rule")) == 1 })
	p.typeInto("spinbutton", "at a time", "0")
	p.clickOn("button", "^Set$")
	b.waitUntil("/v1/groups", func(v map[string]any) bool { return len(v["rules"].([]any)) == 1 })
	p.waitUntil("the rule", func() bool { return len(p.rows("Rules")) == 1 })
	p.waitUntil("what it holds back", func() bool {
		r := p.rows("Groups")
		return len(r) == 1 && r[0][3] == "10"
	})
	p.goTo(b.url("#/job/mail-9"))
	p.awaitText("waits.*group.*tenant|waits.*tenant")
	p.goTo(b.url("#/groups"))
	p.waitUntil("the rule again", func() bool { return len(p.rows("Rules")) == 1 })
	p.clickOn("button", "Drop|Remove|Delete")
	if len(p.find("dialog", "")) > 0 {
		p.clickOn("button", "^(Drop|Remove|Delete)")
	}
	b.waitUntil("/v1/groups", func(v map[string]any) bool { return len(v["rules"].([]any)) == 0 })
}

// TestTestJobsAreSubmitted submits test jobs.
func TestTestJobsAreSubmitted(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.Ignore("status of 4")
	p.goTo(b.url(""))
	p.clickOn("button", "Submit a test job")
	p.typeInto("combobox", "^Type", "quick")
	p.typeInto("textbox", "Body", `{"not": json`)
	p.clickOn("button", "^Submit$")
	p.await("dialog", "test job")
	p.awaitText("JSON")
	p.typeInto("textbox", "Body", `{"n":90071992547409930001}`)
	p.typeInto("textbox", "Priority", "99999999999999999999")
	p.clickOn("button", "^Submit$")
	p.awaitText("must be an integer")
	p.typeInto("textbox", "Priority", "-3")
	p.clickOn("button", "^Submit$")
	p.awaitText("done")
	p.clickOn("button", "^Close$")
	b.waitUntil("/v1/types/quick", func(v map[string]any) bool { return number(v, "ledger", "answered") == 2 })
}

// TestDrainAsksFirst drains the broker. The page asks before it does so.
func TestDrainAsksFirst(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t, "--drain-timeout", "5m")
	p := newPageUser(t)
	p.Ignore("net::ERR", "Failed to fetch")
	p.goTo(b.url(""))
	p.confirm("^Drain$", "Drain", "Drain and stop", func() bool {
		_, v := b.callAPI("GET", "/v1/status", "")
		return v["draining"] == false
	})
	b.waitUntil("/v1/status", func(v map[string]any) bool { return v["draining"] == true })
	p.awaitText("drain")
	b.Kill()
}
