package hub

import "gloom/broker"

// ClosedConn describes a connection that has closed.
type ClosedConn struct {
	Remote, ClientName string
	// OpenedAt and ClosedAt are times of the hub's clock.
	OpenedAt, ClosedAt int64
}

// maxClosedConns is how many closed connections are remembered.
const maxClosedConns = 4096

// closedConns remembers the latest connections that have closed.
type closedConns struct {
	byPeer map[broker.Peer]ClosedConn
	order  [maxClosedConns]broker.Peer // a ring
	next   int
}

func (d *closedConns) add(c *Conn, now int64) {
	delete(d.byPeer, d.order[d.next])
	d.order[d.next] = c.Peer
	d.next = (d.next + 1) % maxClosedConns
	d.byPeer[c.Peer] = ClosedConn{c.Remote, c.ClientName(), c.OpenedAt, now}
}

// ClosedConn returns the description of a closed connection, if maxClosedConns other
// connections have not closed since.
func (h *Hub) ClosedConn(p broker.Peer) ClosedConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closedConns.byPeer[p]
}
