package journal

import "testing"

// SyncedDirectories has the directories listed that are synced during a test.
func SyncedDirectories(t *testing.T) *[]string {
	var list []string
	sync := syncDirectory
	syncDirectory = func(path string) error {
		list = append(list, path)
		return sync(path)
	}
	t.Cleanup(func() { syncDirectory = sync })
	return &list
}

// Queued is how many appends wait to be written.
func (j *Journal) Queued() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue)
}

// Segments are the names of all segments, oldest first.
func (j *Journal) Segments() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	names := make([]string, len(j.segments))
	for i, s := range j.segments {
		names[i] = s.name
	}
	return names
}
