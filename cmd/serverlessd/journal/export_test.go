package journal

// Queued returns how many appends are waiting to be written.
func (j *Journal) Queued() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue)
}

// Segments returns the names of all segments, oldest first.
func (j *Journal) Segments() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	names := make([]string, len(j.segments))
	for i, s := range j.segments {
		names[i] = s.name
	}
	return names
}
