package admin

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"gloom/broker"
	"gloom/broker/admin/api"
	"gloom/broker/admin/moments"
	"gloom/wire"
)

// getGroups shows all rules and the busiest groups, or only the busiest groups of one type.
func (a *API) getGroups(w http.ResponseWriter, r *http.Request) error {
	query, limit := r.URL.Query(), defaultPage
	recent, err := boolParam(r, "lately")
	if err != nil {
		return err
	}
	if v := query.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil && !errors.Is(err, strconv.ErrRange) || n < 1 {
			return apiError(http.StatusBadRequest, "invalid_value", "limit must be an integer of at least 1, got %.64q", v)
		}
		limit = n
		if recent && n > maxListedGroups {
			return apiError(http.StatusBadRequest, "invalid_value", "limit must be at most %d with lately, got %.64q", maxListedGroups, v)
		}
	}
	var typ []byte
	if v := query.Get("type"); v != "" {
		if typ, err = parseName("type", v); err != nil {
			return err
		}
	}
	if recent {
		var answer groupsSnapshot
		a.withSnapshot(func(snap *snapshot) { answer, recent = snap.groupsOf(a, string(typ)) })
		if recent {
			if out := newAnswerWriter(w); limit >= len(answer.groups) {
				_, _ = out.Write(answer.encoded)
			} else {
				_ = a.writeGroups(out, typ == nil, answer.groups[:limit])
			}
			return nil
		}
	}
	l := broker.GroupLook{Limit: min(limit, maxGroups)}
	if typ != nil {
		l.Types = [][]byte{typ}
	}
	a.lookGroups(&l)
	_ = a.writeGroups(newAnswerWriter(w), typ == nil, l.Infos(typ))
	return nil
}

// writeGroups sends groups. If rules is true, it sends all rules first. It returns an error if the
// client has gone.
func (a *API) writeGroups(out io.Writer, rules bool, groups []broker.GroupInfo) error {
	list, head := array{bytesLeft: maxAnswer - minReadBytes}, "{\n  \"groups\": "
	if rules {
		rules := a.srv.Limits().Rules()
		list.begin("{\n  \"rules\": ")
		if err := list.fill(out, len(rules), func(i int) any { return apiRule(rules[i]) }); err != nil {
			return err
		}
		list.end("")
		head = ",\n  \"groups\": "
	}
	list.begin(head)
	if err := list.fill(out, len(groups), func(i int) any { return apiGroup(&groups[i]) }); err != nil {
		return err
	}
	list.end("\n}\n")
	return list.send(out)
}

func apiGroup(g *broker.GroupInfo) api.Group {
	group := api.Group{Group: wire.Value(g.Name), Waiting: g.Waiting, Running: g.Running, Held: g.Held}
	if g.Rule != nil {
		group.Rule = wire.Value(g.Rule)
	}
	return group
}

// maxGroups bounds the groups in an answer.
const maxGroups = maxAnswer / 64

// lookGroups reads all groups, one piece at a time.
func (a *API) lookGroups(l *broker.GroupLook) {
	for more := true; more; {
		a.srv.Hub().View(func(core *broker.Broker, _ int64) { more = core.LookGroups(l) })
	}
}

// groupsSnapshot is one snapshot's list of busiest groups, with the time when it was last requested.
type groupsSnapshot struct {
	groups  []broker.GroupInfo
	encoded []byte // the encoded answer with all groups of the list
	askedAt time.Time
}

const (
	// maxListedGroups limits the groups in a shared list. maxGroupLists limits the shared lists
	// that are kept.
	maxListedGroups = 200
	maxGroupLists   = 128
	// maxGroupsPeriod is the longest interval between two snapshots of groups, if they are slow
	// to take.
	maxGroupsPeriod = 10 * time.Second
)

// groupsOf returns the busiest groups of a type ("" for all jobs), from a new snapshot if one is
// due. It returns false if there is no shared snapshot of these groups.
func (snap *snapshot) groupsOf(a *API, typ string) (groupsSnapshot, bool) {
	now := time.Now()
	groups, known := snap.groups[typ]
	if !known && (typ != "" && snap.rows[typ] == nil || len(snap.groups) >= maxGroupLists) {
		return groups, false
	}
	groups.askedAt = now
	if snap.groups == nil {
		snap.groups = map[string]groupsSnapshot{}
	}
	snap.groups[typ] = groups
	if !now.Before(snap.nextGroupsAt) {
		snap.takeGroups(a, now)
	} else if groups.encoded == nil {
		return groups, false // the next snapshot will include this list
	}
	return snap.groups[typ], true
}

// takeGroups takes snapshots of the groups that were requested recently.
func (snap *snapshot) takeGroups(a *API, now time.Time) {
	l := broker.GroupLook{Limit: maxListedGroups}
	for typ, groups := range snap.groups {
		if now.Sub(groups.askedAt) > moments.Period {
			delete(snap.groups, typ)
		} else {
			l.Types = append(l.Types, []byte(typ))
		}
	}
	a.lookGroups(&l)
	for _, typ := range l.Types {
		groups, buf := snap.groups[string(typ)], bytes.Buffer{}
		groups.groups = l.Infos(typ)
		_ = a.writeGroups(&buf, len(typ) == 0, groups.groups)
		groups.encoded = buf.Bytes()
		snap.groups[string(typ)] = groups
	}
	snap.nextGroupsAt = now.Add(min(max(snapshotPeriod, pausePerSnapshot*time.Since(now)), maxGroupsPeriod))
}

// dropGroups makes the next request take new snapshots, since a change has made the last ones stale.
func (snap *snapshot) dropGroups() {
	snap.mu.Lock()
	snap.nextAt, snap.nextGroupsAt = time.Time{}, time.Time{}
	snap.mu.Unlock()
}
