package peer

// UnfinishedBytes returns the bytes that connections hold for incomplete messages.
func (s *Server) UnfinishedBytes() int {
	s.unfinished.mu.Lock()
	defer s.unfinished.mu.Unlock()
	return s.unfinished.totalBytes
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
