package journal

import (
	"cmp"
	"slices"
)

// Position is an offset in one of the segments of a journal.
type Position struct {
	Segment string
	Offset  int64
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Segment, q.Segment), cmp.Compare(p.Offset, q.Offset))
}

// LaneNote says which piece a lane got last. Pieces are handed out in order, and a lane gets the next
// one only when it has synced the last. So a store has everything before the end of the last note,
// except the pieces in the notes. A lane has one reader, which reads one piece at a time.
type LaneNote struct {
	Lane     string
	From, To Position // if To has no segment, everything after From belongs to the lane
}

// lanePiece is a range that must be read again, by a lane.
type lanePiece struct {
	Range
	lane string // "": any lane may get it
}

// noteReservation assigns a reserved piece to a lane, and makes that durable.
func (j *Journal) noteReservation(lane string, r *Reservation) error {
	notes := slices.DeleteFunc(slices.Clone(j.notes), func(n LaneNote) bool { return n.Lane == lane })
	notes = append(notes, LaneNote{lane, Position{r.Segment, r.From}, Position{r.Segment, r.To}})
	if err := j.opt.SaveNotes(notes); err != nil {
		return err
	}
	j.notes, j.notesChanged = notes, false
	r.lane = lane
	return nil
}

// saveNotes makes the notes durable if they have changed.
func (j *Journal) saveNotes() error {
	if !j.notesChanged || j.opt.SaveNotes == nil {
		return nil
	}
	err := j.opt.SaveNotes(j.notes)
	j.notesChanged = err != nil
	return err
}

// assignLanes gives each lane the pieces that an earlier process has noted for it, and decides which
// lanes get the other pieces. This decision must be durable before any piece is handed out.
func (j *Journal) assignLanes() error {
	jobs := make(map[string]Count)
	for _, s := range j.earlierSegments {
		for jobtype, c := range s.jobs {
			sum := jobs[jobtype]
			jobs[jobtype] = Count{sum.Jobs + c.Jobs, sum.Delayed + c.Delayed}
		}
	}
	var oldPieces []lanePiece
	if len(j.opt.Lanes) > 0 {
		var err error
		if oldPieces, err = j.routePieces(jobs); err != nil {
			return err
		}
	}
	j.mu.Lock()
	j.segments, j.earlierSegments, j.earlierBytes = append(j.earlierSegments, j.segments...), nil, 0
	j.rereads = append(j.rereads, oldPieces...)
	for jobtype, c := range jobs {
		oldCount := j.waiting[jobtype]
		j.setCount(jobtype, oldCount, Count{oldCount.Jobs + c.Jobs, oldCount.Delayed + c.Delayed})
	}
	oldSegments := j.sweep()
	j.mu.Unlock()
	j.remove(oldSegments)
	if err := j.saveNotes(); err != nil {
		j.opt.Log.Warn().Err(err).Msg("cannot note yet which store gets which part of the journal")
	}
	return nil
}

// routePieces returns the pieces that earlier processes have left, each with its lane. It leaves
// out pieces that a store already has.
func (j *Journal) routePieces(jobs map[string]Count) (oldPieces []lanePiece, err error) {
	var notes []LaneNote
	var end, known Position // known is where the notes end: everything before it is in a note or in a store
	if n := len(j.earlierSegments); n > 0 {
		end = Position{j.earlierSegments[n-1].name, j.earlierSegments[n-1].readableTo}
		if notes = slices.Clone(j.opt.Notes); len(notes) == 0 { // without notes, the whole journal belongs to the first lane
			notes = []LaneNote{{Lane: j.opt.Lanes[0]}}
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
	slices.SortFunc(notes, func(a, b LaneNote) int { return a.From.compare(b.From) })
	for _, s := range j.earlierSegments {
		at := int64(0)
		for _, n := range notes {
			from, to := s.bytesBefore(n.From), s.bytesBefore(n.To)
			if from >= to {
				continue
			}
			if err := s.skipStored(at, from, jobs); err != nil {
				return nil, err
			}
			oldPieces = append(oldPieces, lanePiece{Range{s.name, from, to}, n.Lane})
			at = to
		}
		s.reservedTo = s.bytesBefore(known)
		if err := s.skipStored(at, s.reservedTo, jobs); err != nil {
			return nil, err
		}
	}
	j.notes = j.dropOldNotes(notes, known)
	j.notesChanged = !slices.Equal(j.notes, j.opt.Notes)
	return oldPieces, nil
}

// dropOldNotes returns the notes without the notes of removed segments, and joins adjacent notes.
// If there is only one lane, this lane gets all pieces that follow.
func (j *Journal) dropOldNotes(notes []LaneNote, known Position) (newNotes []LaneNote) {
	if len(j.opt.Lanes) == 1 {
		notes = append(notes, LaneNote{j.opt.Lanes[0], known, Position{}})
	}
	slices.SortStableFunc(notes, func(a, b LaneNote) int { return a.From.compare(b.From) })
	for _, n := range notes {
		open := n.To.Segment == ""
		if !open && (len(j.earlierSegments) == 0 || n.To.Segment < j.earlierSegments[0].name) {
			continue
		}
		if last := len(newNotes) - 1; last >= 0 && newNotes[last].Lane == n.Lane && newNotes[last].To == n.From {
			newNotes[last].To = n.To
		} else {
			newNotes = append(newNotes, n)
		}
	}
	return newNotes
}

// bytesBefore returns how many bytes of a segment are before a position.
func (s *segment) bytesBefore(p Position) int64 {
	switch cmp.Compare(s.name, p.Segment) {
	case -1:
		return s.readableTo
	case 0:
		return min(p.Offset, s.readableTo)
	}
	return 0
}

// skipStored records that a piece has reached a store while an earlier process ran.
func (s *segment) skipStored(from, to int64, jobs map[string]Count) error {
	if from >= to {
		return nil
	}
	s.finish(from, to)
	return s.scan(from, to, func(_ int64, r record, state recordState) bool {
		if state == recordWhole {
			jobs[r.jobtype] = jobs[r.jobtype].add(-r.count, r.due)
		}
		return true
	})
}
