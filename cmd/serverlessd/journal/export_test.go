package journal

// Queued is how many appends wait to be written.
func (j *Journal) Queued() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue)
}
