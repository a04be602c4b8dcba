package load

// DisconnectSubmitters makes every submitter hang up at once, with a reset, even if it has unsent
// bytes.
func (g *Generator) DisconnectSubmitters() error {
	return g.eachLane(func(l *lane) error {
		for _, s := range l.submitters {
			if s.side != nil && !s.disconnected {
				s.budget = 0
				s.hangup(true)
			}
		}
		return nil
	})
}
