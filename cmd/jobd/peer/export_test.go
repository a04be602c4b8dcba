package peer

// Unfinished returns the bytes that connections hold for incomplete messages.
func (s *Server) Unfinished() int {
	s.partial.mu.Lock()
	defer s.partial.mu.Unlock()
	return s.partial.total
}
