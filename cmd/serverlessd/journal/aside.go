package journal

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"gloom/cmd/serverlessd/job"
)

// AsideFile is a file of lines that are not run: no store accepts the lines, or the journal is
// damaged at their place.
type AsideFile struct {
	File     string
	Bytes    int64
	Jobs     []Entry   // empty if the file is damaged, because its jobs are then not known
	Accepted time.Time // when the first job was accepted; zero: unknown

	damaged []span // pieces of a file with jobs; the jobs in them are not known
}

// AsideError says that a job was set aside.
type AsideError struct {
	Jobtype string
	File    string // the file's name in the journal's directory
	Cause   error  // why the store refused it; nil after a restart
}

func (e *AsideError) Error() string {
	reason := "it"
	if e.Cause != nil {
		reason = fmt.Sprintf("it (%v)", e.Cause)
	}
	return fmt.Sprintf("the job is set aside in the file journal/%s, because the store did not accept %s; POST /put-back?file=%[1]s gives it to the store again", e.File, reason)
}

// CheckAside returns an *AsideError if a job was set aside and not put back, otherwise nil.
func (j *Journal) CheckAside(id job.ID) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a := j.asideJobs[id]; a != nil {
		return a
	}
	return nil
}

// ErrAsideChanged means that a file is not removed, because it has changed since it was read: more
// jobs were set aside in it.
var ErrAsideChanged = errors.New("the file has changed since it was read")

// ErrNoAsideFile means that there is no such file.
var ErrNoAsideFile = errors.New("there is no such file of jobs that were set aside")

// AsideFiles returns the files of jobs that were set aside, the oldest first, without
// payloads.
func (j *Journal) AsideFiles() (files []AsideFile, err error) {
	names, err := j.opt.Files.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, badSuffix) {
			continue
		}
		a, err := j.ReadAsideFile(name)
		if errors.Is(err, ErrNoAsideFile) {
			continue // the file has just been put back
		}
		if err != nil {
			return nil, err
		}
		for i := range a.Jobs {
			a.Jobs[i].Payload = nil
		}
		files = append(files, a)
	}
	slices.SortFunc(files, func(a, b AsideFile) int { return strings.Compare(a.File, b.File) })
	return files, nil
}

// ReadAsideFile reads a file of jobs that were set aside.
func (j *Journal) ReadAsideFile(name string) (aside AsideFile, err error) {
	id, ok := strings.CutSuffix(name, badSuffix)
	if !ok || strings.ContainsAny(id, "/\\") {
		return aside, ErrNoAsideFile
	}
	j.asideMu.Lock()
	defer j.asideMu.Unlock()
	f, err := j.opt.Files.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return aside, ErrNoAsideFile
	} else if err != nil {
		return aside, err
	}
	defer f.Close()
	aside.File = name
	if aside.Bytes, err = f.Size(); err != nil {
		return aside, err
	}
	// If the file holds jobs, its name contains the id of the first job. If it holds a damaged piece
	// of a segment, its name contains the position of the damage.
	if _, err := job.ParseID(id); err != nil {
		return aside, nil
	}
	s := &segment{name: name, file: f, readableTo: aside.Bytes}
	err = s.scan(0, s.readableTo, func(at int64, r record, state recordState) bool {
		if state != recordWhole {
			aside.damaged = append(aside.damaged, span{at, at + int64(r.size)})
			return true
		}
		if aside.Accepted.IsZero() {
			aside.Accepted = r.date
		}
		i := 0
		for line := range linesOf(r.body) {
			aside.Jobs = append(aside.Jobs, r.entry(r.firstID.Add(i), line, at))
			i++
		}
		return true
	})
	return aside, err
}

// RemoveAsideFile removes a file of jobs that were set aside. It must be called only when the jobs
// are in a store. It returns ErrAsideChanged if the file then has other jobs, too.
func (j *Journal) RemoveAsideFile(a *AsideFile) error {
	if err := j.keepDamage(a); err != nil {
		return err
	}
	j.asideMu.Lock()
	defer j.asideMu.Unlock()
	size, err := j.fileSize(a.File)
	if err == nil && size != a.Bytes {
		return ErrAsideChanged
	}
	if err == nil {
		err = j.opt.Files.Remove(a.File)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a person may have deleted it meanwhile
		return err
	}
	if err := j.opt.Files.Sync(); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.AsideFiles--
	maps.DeleteFunc(j.asideJobs, func(_ job.ID, aside *AsideError) bool { return aside.File == a.File }) // those of damaged pieces, too
	return nil
}

// keepDamage copies the damaged pieces of a file with jobs to files of their own.
func (j *Journal) keepDamage(a *AsideFile) error {
	if len(a.damaged) == 0 {
		return nil
	}
	f, err := j.opt.Files.Open(a.File)
	if errors.Is(err, os.ErrNotExist) { // a person may have deleted it meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s := &segment{name: strings.TrimSuffix(a.File, badSuffix), file: f}
	for _, d := range a.damaged {
		err = errors.Join(err, j.setAside(s, d.from, d.to-d.from))
	}
	return err
}

// noteAside counts jobs as set aside. The caller holds mu.
func (j *Journal) noteAside(file string, jobs []Entry, cause error) {
	for i := range jobs {
		j.asideJobs[jobs[i].ID] = &AsideError{Jobtype: jobs[i].Jobtype, File: file, Cause: cause}
	}
}

// countAsideJobs counts the jobs that earlier processes have set aside.
func (j *Journal) countAsideJobs(names []string) {
	for _, name := range names {
		if !strings.HasSuffix(name, badSuffix) {
			continue
		}
		j.stats.AsideFiles++
		a, err := j.ReadAsideFile(name)
		if err != nil {
			j.opt.Log.Error().Err(err).Str("file", name).Msg("cannot count the jobs that were set aside")
		}
		j.noteAside(name, a.Jobs, nil)
	}
}

// SetAsideJobs returns the number of jobs that are set aside, by jobtype.
func (j *Journal) SetAsideJobs() map[string]int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	jobs := make(map[string]int64)
	for _, a := range j.asideJobs {
		jobs[a.Jobtype]++
	}
	return jobs
}

// Piece returns the range under which a store records that it has the file's jobs. So it takes them
// only once.
func (a *AsideFile) Piece() Range { return Range{Segment: a.File, To: a.Bytes} }
