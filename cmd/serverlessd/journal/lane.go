package journal

import (
	"cmp"
	"slices"
	"time"
)

// Place is a point in a journal.
type Place struct {
	Segment string
	Offset  int64
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Segment, q.Segment), cmp.Compare(p.Offset, q.Offset))
}

// Note says what went to a lane last. Notes cover the front of a journal without
// gaps, and a lane gets nothing new before it has synced what it has: so whatever
// stands before the last note's end, and in none, is in a store. A lane is read by
// one reader, a piece at a time.
type Note struct {
	Lane     string
	From, To Place // To's segment is "" where everything behind From is the lane's
}

// piece is what is to be read again.
type piece struct {
	Range
	lane string // "": anybody's
}

// note has a lane have a piece that was nobody's.
func (j *Journal) note(lane string, r *Reservation) error {
	notes := slices.DeleteFunc(slices.Clone(j.notes), func(n Note) bool { return n.Lane == lane })
	notes = append(notes, Note{lane, Place{r.Segment, r.From}, Place{r.Segment, r.To}})
	if err := j.opt.Save(notes); err != nil {
		return err
	}
	j.notes = notes
	r.lane = lane
	return nil
}

// assign gives lanes what an earlier life noted for them, and notes whose the
// rest is.
func (j *Journal) assign() error {
	if len(j.opt.Lanes) == 0 {
		return nil
	}
	var notes []Note
	var end, known Place // of what there is; all before known is in a note or a store
	if n := len(j.segments); n > 0 {
		end = Place{j.segments[n-1].name, j.segments[n-1].end}
		if notes = slices.Clone(j.opt.Notes); len(notes) == 0 { // it was the first one's
			notes = []Note{{Lane: j.opt.Lanes[0]}}
		}
	}
	for i := range notes {
		if notes[i].To.Segment == "" {
			notes[i].To = end
		}
		if notes[i].To.compare(known) > 0 {
			known = notes[i].To
		}
		if !slices.Contains(j.opt.Lanes, notes[i].Lane) {
			j.opt.Log.Error().Str("store", notes[i].Lane).
				Msg("the journal may have jobs for a store that is not given; they wait for it")
		}
	}
	slices.SortFunc(notes, func(a, b Note) int { return a.From.compare(b.From) })
	for _, s := range j.segments {
		at := int64(0)
		for _, n := range notes {
			from, to := s.clip(n.From), s.clip(n.To)
			if from >= to {
				continue
			}
			j.skip(s, at, from)
			j.back = append(j.back, piece{Range{s.name, from, to}, n.Lane})
			at = to
		}
		s.next = s.clip(known)
		j.skip(s, at, s.next)
	}
	if j.notes = j.tidy(notes, known); j.opt.Save != nil {
		if err := j.opt.Save(j.notes); err != nil {
			return err
		}
	}
	j.remove(j.sweep())
	return nil
}

// tidy drops notes of what is no more, joins those that meet, and gives the only
// lane all that comes.
func (j *Journal) tidy(notes []Note, known Place) (tidy []Note) {
	if len(j.opt.Lanes) == 1 {
		notes = append(notes, Note{j.opt.Lanes[0], known, Place{}})
	}
	slices.SortStableFunc(notes, func(a, b Note) int { return a.From.compare(b.From) })
	for _, n := range notes {
		open := n.To.Segment == ""
		if !open && (len(j.segments) == 0 || n.To.Segment < j.segments[0].name) {
			continue
		}
		if last := len(tidy) - 1; last >= 0 && tidy[last].Lane == n.Lane && tidy[last].To == n.From {
			tidy[last].To = n.To
		} else {
			tidy = append(tidy, n)
		}
	}
	return tidy
}

// clip is the part of a segment that stands before a place.
func (s *segment) clip(p Place) int64 {
	switch cmp.Compare(s.name, p.Segment) {
	case -1:
		return s.end
	case 0:
		return min(p.Offset, s.end)
	}
	return 0
}

// skip notes that a piece is in a store since an earlier life.
func (j *Journal) skip(s *segment, from, to int64) {
	if from >= to {
		return
	}
	type kind struct {
		jobtype string
		due     time.Time
	}
	counts := make(map[kind]int)
	_ = s.scan(from, to, func(_ int64, r record, f form) bool {
		if f == whole {
			counts[kind{r.jobtype, r.due}] += r.count
		}
		return true
	})
	for k, n := range counts {
		j.count(k.jobtype, -n, k.due)
	}
	s.finish(from, to)
}
