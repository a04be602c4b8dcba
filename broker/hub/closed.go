package hub

import "gloom/broker"

// Departed is a connection that has closed.
type Departed struct {
	Remote, Client string
	// Opened and Closed are times of the hub's clock.
	Opened, Closed int64
}

// mostDeparted is how many closed connections are remembered.
const mostDeparted = 4096

// departures remembers the latest connections that have closed.
type departures struct {
	of    map[broker.Peer]Departed
	order [mostDeparted]broker.Peer // a ring
	next  int
}

func (d *departures) add(c *Conn, now int64) {
	delete(d.of, d.order[d.next])
	d.order[d.next] = c.Peer
	d.next = (d.next + 1) % mostDeparted
	d.of[c.Peer] = Departed{c.Remote, c.Client(), c.Opened, now}
}

// Departed returns what is remembered of a closed connection: nothing if mostDeparted others
// have closed since.
func (h *Hub) Departed(p broker.Peer) Departed {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.departed.of[p]
}
