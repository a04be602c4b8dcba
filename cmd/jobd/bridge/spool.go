package bridge

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gloom/cmd/internal/durable"
	"gloom/cmd/jobd/store"

	"github.com/goccy/go-json"
)

const (
	// maxOutputMemory limits the bytes of results that wait in memory. Beyond it, outputs of more
	// than maxCutOutput bytes are spooled, or cut to that size.
	maxOutputMemory = 128 << 20
	maxCutOutput    = 64 << 10
	// minCutOutput is the number of bytes of each output that are kept if, at a stop, the spool has
	// no room for all of it.
	minCutOutput = 512
)

// spool keeps results on disk while the database is away, one file per row. The results outlive the
// daemon: its successor writes them if their rows still belong to the old incarnation.
type spool struct {
	dir    string
	prefix string // the beginning of the file names for one table
}

// spoolEntry is the content of a file in the spool.
type spoolEntry struct {
	Token int64        `json:"token"`
	Final store.Result `json:"final"`
}

// newSpool creates the directory. table distinguishes the results of daemons that share the
// directory.
func newSpool(dir, table string) (*spool, error) {
	if err := durable.MakeDir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool_dir: %w", err)
	}
	probe, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return nil, fmt.Errorf("spool_dir: %w", err)
	}
	probe.Close()
	os.Remove(probe.Name())
	h := fnv.New64a()
	h.Write([]byte(table))
	return &spool{dir: dir, prefix: fmt.Sprintf("jobd-%016x-", h.Sum64())}, nil
}

func (s *spool) filePath(token, id int64) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s%d-%d.json", s.prefix, token, id))
}

// saveResult writes a result completely or not at all.
func (s *spool) saveResult(token int64, f store.Result) error {
	text, err := json.Marshal(spoolEntry{Token: token, Final: f})
	if err != nil {
		return err
	}
	return durable.WriteFile(s.filePath(token, f.ID), text)
}

func (s *spool) loadResult(token, id int64) (store.Result, error) {
	entry, _, err := s.readEntry(s.filePath(token, id))
	return entry.Final, err
}

func (s *spool) readEntry(path string) (e spoolEntry, size int64, err error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() && !info.IsDir() { // opening a pipe would block
		return e, 0, errors.New("not a regular file")
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &e)
	}
	return e, int64(len(text)), err
}

// isReadError reports whether a file exists but could not be read.
func isReadError(err error) bool {
	var file *fs.PathError
	return errors.As(err, &file) && !errors.Is(err, fs.ErrNotExist)
}

// entryOfName returns what the name of a file says about the result in it: that the job has ended,
// but not how.
func (s *spool) entryOfName(path string) (e spoolEntry, err error) {
	e.Final = store.Result{Code: -1, At: time.Now().Unix()}
	if _, err = fmt.Sscanf(filepath.Base(path), s.prefix+"%d-%d.json", &e.Token, &e.Final.ID); err == nil && s.filePath(e.Token, e.Final.ID) != path {
		err = errors.New("not the name of a result")
	}
	return e, err
}

// removeResult removes a result from the spool. If the file reappears after a power failure, because
// syncRemovals was not called in time, its row no longer belongs to this token and is left alone.
func (s *spool) removeResult(token, id int64) { _ = os.Remove(s.filePath(token, id)) }

func (s *spool) syncRemovals() { _ = durable.SyncDir(s.dir) }

// removeUnfinished removes files that earlier daemons were writing when they were killed. Their
// rows have no result in the spool.
func (s *spool) removeUnfinished() {
	files, _ := os.ReadDir(s.dir) // its name may have characters that a pattern does not match
	for _, file := range files {
		if strings.HasPrefix(file.Name(), s.prefix) && strings.HasSuffix(file.Name(), ".json"+durable.UnfinishedSuffix) {
			_ = os.Remove(filepath.Join(s.dir, file.Name()))
		}
	}
}

// eachResult calls f for each result that earlier daemons have spooled, with the size of its file,
// and onError for each file that cannot be read. If such a file may be readable later, eachResult
// also calls f, with what the file's name says.
func (s *spool) eachResult(f func(e spoolEntry, size int64), onError func(file string, err error)) error {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	for _, file := range files {
		if !strings.HasPrefix(file.Name(), s.prefix) || !strings.HasSuffix(file.Name(), ".json") {
			continue
		}
		path := filepath.Join(s.dir, file.Name())
		e, size, err := s.readEntry(path)
		if err == nil && path != s.filePath(e.Token, e.Final.ID) {
			err = errors.New("the result in the file is not the one that its name says")
		}
		if err != nil {
			onError(path, err)
			if !isReadError(err) {
				continue
			}
			if e, err = s.entryOfName(path); err != nil {
				continue
			}
		}
		f(e, size)
	}
	return nil
}
