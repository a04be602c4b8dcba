package wording_test

import (
	"strings"
	"testing"

	"gloom/broker"
	"gloom/broker/wording"
)

// TestEveryReasonHasText: there is a text for every reason of the core, and for everything that a
// job waits for.
func TestEveryReasonHasText(t *testing.T) {
	for why := broker.WhySeeText + 1; why <= broker.WhyEmptyRule; why++ {
		r := broker.Reason{Why: why, Have: 1e9, Overdue: 2, Need: 3, Limit: 4, Text: "t"}
		for _, x := range []*broker.BadSetting{{Pattern: []byte("p"), Reason: r}, {Type: []byte("t"), Reason: r}} {
			if s := wording.SettingErrorOf(x).Error(); s == "" || s == `type "t": ` || strings.Contains(s, "%!") {
				t.Errorf("%d is %q", why, s)
			}
		}
	}
	for hold := broker.HeldByDelay; hold <= broker.HeldByFewWorkers; hold++ {
		if s := wording.WaitingFor(&broker.JobInfo{Hold: hold}); s == "" || strings.Contains(s, "%!") {
			t.Errorf("the hold %d is %q", hold, s)
		}
	}
	for _, c := range []struct {
		r    broker.Reason
		want string
	}{
		{broker.Reason{Text: "broken"}, "broken"},
		{broker.Reason{Why: broker.WhyOutcomeKept, Have: 61.4e9}, "the outcome of a job with this id is kept for another 1m1s: attach to it, or cancel it"},
		{broker.Reason{Why: broker.WhyTooManyBytes, Have: 7, Need: 3, Limit: 9}, "the broker holds 7 bytes, and 3 more would exceed 9 (max-bytes)"},
		{broker.Reason{Why: broker.WhyTooManyBytes, Have: 7, Overdue: 2, Need: 3, Limit: 9}, "the broker holds 7 bytes (2 overdue runs among them), and 3 more would exceed 9 (max-bytes)"},
		{broker.Reason{Why: broker.WhyTooManyTypeBytes, Have: 7, Need: 3, Limit: 9, Text: `t"`}, `type "t\"" holds 7 bytes, and 3 more would exceed 9 (max-type-bytes)`},
		{broker.Reason{Why: broker.WhyTooManyOverdue, Have: 7, Overdue: 8}, "there are 8 overdue runs, and 7 of them are on this connection, which does not answer them (half of max-jobs or max-bytes)"},
		{broker.Reason{Why: broker.WhyTimedOut, Have: 2, Limit: 50}, "run 2 took longer than its timeout of 50ms"},
	} {
		if got := wording.Reason(&c.r); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
