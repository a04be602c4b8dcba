package fleetprobe

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"gloom/broker/admin/api"
)

// typeOfTest returns a type for one test.
func typeOfTest(t testing.TB) string { return strings.NewReplacer("/", "-").Replace(t.Name()) }

// awaitWants waits until a broker has heard that another broker wants jobs of a type.
func awaitWants(t testing.TB, home *broker, brokerName, typ string) {
	t.Helper()
	if err := waitUntil(brokerName+"'s want of "+typ+" is known at "+home.name, func() error {
		v, err := home.fleet()
		if err != nil {
			return err
		}
		for _, b := range v.Brokers {
			if text, _ := json.Marshal(b.Wants); b.Name == brokerName && strings.Contains(string(text), quote(typ)) {
				return nil
			}
		}
		return fmt.Errorf("%+v", v.Brokers)
	}); err != nil {
		t.Fatal(err)
	}
}

func fetchLedger(t testing.TB, b *broker, typ string) (api.Ledger, error) {
	t.Helper()
	var v api.Type
	if err := b.ask("GET", "/v1/types/"+url.PathEscape(typ), nil, &v); err != nil {
		if e := (*api.Error)(nil); errors.As(err, &e) && e.Status == http.StatusNotFound {
			err = nil
		}
		return v.Ledger, err
	}
	l := v.Ledger
	if l.Submitted != l.Ended()+l.Delayed+l.Queued+l.Running {
		t.Errorf("%s: the ledger of %s does not balance: %+v", b.name, typ, l)
	}
	return l, nil
}

// awaitCounts waits until the ledger of a type has the wanted counts. It repeats a request if the
// broker closed the connection without an answer: on a busy machine, the head of a request may
// arrive too late.
func awaitCounts(t testing.TB, b *broker, typ string, want api.Ledger) {
	t.Helper()
	if err := waitUntil("the ledger of "+typ+" at "+b.name+" is as it should be", func() error {
		l, err := fetchLedger(t, b, typ)
		if err == nil && l != want {
			return fmt.Errorf("%+v, want %+v", l, want)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

func fetchJob(t testing.TB, b *broker, id string) (v api.Job, err error) {
	t.Helper()
	err = b.ask("GET", "/v1/jobs/"+url.PathEscape(id), nil, &v)
	return v, err
}

// awaitState waits until a job is in a state.
func awaitState(t testing.TB, b *broker, id, state string) api.Job {
	t.Helper()
	var v api.Job
	if err := waitUntil(id+" is "+state, func() (err error) {
		if v, err = fetchJob(t, b, id); err == nil && v.State != state {
			err = fmt.Errorf("%+v", v)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return v
}
