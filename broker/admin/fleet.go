package admin

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gloom/broker/admin/api"
)

func (a *API) getFleet(w http.ResponseWriter, _ *http.Request) error {
	out := api.Fleet{Brokers: []api.FleetBroker{}}
	if f := a.srv.Fleet(); f != nil {
		x := f.Info()
		out = api.Fleet{
			Member: true, Name: x.Name, Epoch: formatEpoch(x.Epoch), Alone: x.NameTaken,
			NATS: &api.NATS{Connected: x.Connected, Seconds: time.Since(x.Since).Seconds(), URL: x.URL, Reason: x.Away},
			Lent: x.Stats.Lent, Borrowed: x.Stats.Borrowed, Lends: x.Stats.Lends, Borrows: x.Stats.Borrows,
			Returned: x.Stats.Returned, Lost: x.Stats.Lost, Late: x.Stats.Late, Brokers: []api.FleetBroker{},
		}
		for _, p := range x.Peers {
			b := api.FleetBroker{
				Name: p.Name, Epoch: formatEpoch(p.Epoch), State: p.State, Version: p.Version, HeardMS: p.SinceHeartbeat.Seconds() * 1e3,
				Lent: p.Lent, Borrowed: p.Borrowed, Wants: []api.FleetWant{},
			}
			if p.RoundTrip > 0 {
				ms := p.RoundTrip.Seconds() * 1e3
				b.RoundTripMS = &ms
			}
			for _, v := range p.Wants {
				b.Wants = append(b.Wants, api.FleetWant{Types: stringsOf(v.Types), Places: v.Places})
			}
			out.Brokers = append(out.Brokers, b)
		}
	}
	reply(w, http.StatusOK, out)
	return nil
}

func formatEpoch(n uint64) string { return fmt.Sprintf("%016x", n) }

var (
	descFleetUp       = desc("fleet_connected", "1 while NATS is connected.")
	descFleetPeers    = desc("fleet_peers", "Other brokers of the fleet that send heartbeats, by state.", "state")
	descFleetLent     = desc("fleet_lent", "Jobs of this broker that are at other brokers now.")
	descFleetBorrowed = desc("fleet_borrowed", "Jobs of other brokers that run here now.")
	descFleetLends    = desc("fleet_lends_total", "Jobs lent to other brokers.")
	descFleetBorrows  = desc("fleet_borrows_total", "Jobs borrowed from other brokers.")
	descFleetReturned = desc("fleet_returned_total", "Lent jobs that came back without having run.")
	descFleetLost     = desc("fleet_lost_total", "Lent jobs whose borrower was lost.")
	descFleetLate     = desc("fleet_late_total", "Results that arrived after their loan had ended.")
	descFleetGaps     = desc("fleet_gaps_total", "How often messages from another broker were missing and were requested again.")
	descFleetGarbage  = desc("fleet_garbage_total", "Messages that could not be read.")
	descFleetWants    = desc("fleet_wants", "Sets of types that other brokers have idle workers for, up to 100 per broker.")
	descFleetMessages = desc("fleet_messages_total", "Messages on NATS, by direction.", "direction")
	descFleetBytes    = desc("fleet_bytes_total", "Bytes of messages on NATS, by direction.", "direction")
	descFleetTrip     = desc("fleet_round_trip_seconds", "Time that a heartbeat took to reach another broker and return.")
	descFleetBatch    = desc("fleet_batch_items", "Items in a message to one broker: jobs, answers, offers.")
)

var fleetDescs = []*prometheus.Desc{
	descFleetUp, descFleetPeers, descFleetLent, descFleetBorrowed, descFleetLends, descFleetBorrows, descFleetReturned, descFleetLost,
	descFleetLate, descFleetGaps, descFleetGarbage, descFleetWants, descFleetMessages, descFleetBytes, descFleetTrip, descFleetBatch,
}

// collectFleet shows the fleet, if the broker is in one.
func (c *collector) collectFleet(ch chan<- prometheus.Metric) {
	f := c.srv.Fleet()
	if f == nil {
		return
	}
	x := f.Info()
	connected := 0.0
	if x.Connected {
		connected = 1
	}
	gauge(ch, descFleetUp, connected)
	states, wants := map[string]int{"joining": 0, "up": 0, "draining": 0, "foreign": 0}, 0
	for i := range x.Peers {
		states[x.Peers[i].State]++
		wants += len(x.Peers[i].Wants)
	}
	for state, n := range states {
		gauge(ch, descFleetPeers, float64(n), state)
	}
	s := &x.Stats
	gauge(ch, descFleetLent, float64(s.Lent))
	gauge(ch, descFleetBorrowed, float64(s.Borrowed))
	count(ch, descFleetLends, s.Lends)
	count(ch, descFleetBorrows, s.Borrows)
	count(ch, descFleetReturned, s.Returned)
	count(ch, descFleetLost, s.Lost)
	count(ch, descFleetLate, s.Late)
	count(ch, descFleetGaps, s.Gaps)
	count(ch, descFleetGarbage, s.Garbage)
	gauge(ch, descFleetWants, float64(wants))
	count(ch, descFleetMessages, x.MessagesIn, "in")
	count(ch, descFleetMessages, x.MessagesOut, "out")
	count(ch, descFleetBytes, x.BytesIn, "in")
	count(ch, descFleetBytes, x.BytesOut, "out")
	histogram(ch, descFleetTrip, &s.RoundTrips, s.RoundTripSum)
	sizes := map[float64]uint64{}
	var n uint64
	for i, v := range s.Batches {
		n += v
		sizes[float64(uint64(1)<<i)] = n
	}
	ch <- prometheus.MustNewConstHistogram(descFleetBatch, n, float64(s.Items), sizes)
}
