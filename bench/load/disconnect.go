package load

// DisconnectSubmitters makes every submitter hang up at once, with a reset, even if it has unsent
// bytes.
func (g *Generator) DisconnectSubmitters() error {
	return g.eachShard(func(sh *shard) error {
		for _, s := range sh.submitters {
			if s.side != nil && !s.disconnected {
				s.budget = 0
				s.hangup(true)
			}
		}
		return nil
	})
}
