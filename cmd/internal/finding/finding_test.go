package finding

import (
	"fmt"
	"testing"
	"time"
)

// TestList: the worst are first, similar ones are merged, and each has the time since when it has
// lasted without a break.
func TestList(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	var m Memory
	look := func(at time.Duration, names ...string) List {
		var l List
		l.Add(Info, "daemon", "daemon", "busy", "all slots are taken", "")
		for _, n := range names {
			l.Add(Severe, "type", n, "no_worker", "no worker", "")
		}
		l.Sort()
		m.Note(l, begin.Add(at))
		return l
	}
	look(0, "a", "b")
	look(time.Second, "b")
	l := look(2*time.Second, "a", "b", "c", "d", "e")
	said := ""
	for _, f := range l.Folded() {
		since, _ := time.Parse(time.RFC3339, f.Since)
		said += fmt.Sprint(f.Severity, " ", f.Subject, " +", f.Alike, " for ", begin.Add(2*time.Second).Sub(since), "; ")
	}
	if want := "severe a +0 for 0s; severe b +0 for 2s; severe c +2 for 0s; info daemon +0 for 2s; "; said != want {
		t.Errorf("%s, want %s", said, want)
	}
	if n := l.Counts(); n[Severe] != 5 || n[Info] != 1 || n[Warning] != 0 {
		t.Error(n)
	}
}
