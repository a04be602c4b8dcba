package wording

import "testing"

func TestWordsForLeftoverJobs(t *testing.T) {
	for want, l := range map[string]Leftovers{
		"nothing":                                           {},
		"results that submitters have not read":             {Unread: 12},
		"1 queued job":                                      {Queued: 1, Unread: 12},
		"1 running and 1 queued job":                        {Running: 1, Queued: 1},
		"1 running and 2 queued jobs":                       {Running: 1, Queued: 2},
		"4 running, 3 borrowed, 2 queued and 1 delayed job": {Running: 4, Borrowed: 3, Queued: 2, Delayed: 1},
	} {
		if got := l.String(); got != want {
			t.Errorf("%+v: %q, want %q", l, got, want)
		}
	}
}
