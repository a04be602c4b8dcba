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
		info := f.Info()
		out = api.Fleet{
			Member: true, Name: info.Name, Epoch: formatEpoch(info.Epoch), Alone: info.NameTaken,
			NATS: &api.NATS{Connected: info.Connected, SinceSeconds: time.Since(info.Since).Seconds(), URL: info.URL, Reason: info.AwayReason},
			Lent: info.Stats.Lent, Borrowed: info.Stats.Borrowed, Lends: info.Stats.TotalLent, Borrows: info.Stats.TotalBorrowed,
			Returned: info.Stats.ReturnedJobs, Lost: info.Stats.LostJobs, Late: info.Stats.LateResults, Brokers: []api.FleetBroker{},
		}
		for _, p := range info.Peers {
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

// collectFleet reports the fleet's metrics, if the broker is in one.
func (c *collector) collectFleet(m metrics) {
	f := c.srv.Fleet()
	if f == nil {
		return
	}
	info := f.Info()
	isConnected := 0.0
	if info.Connected {
		isConnected = 1
	}
	m.gauge("fleet_connected", "1 while NATS is connected.", isConnected)
	states, wants := map[string]int{"joining": 0, "up": 0, "draining": 0, "foreign": 0}, 0
	for i := range info.Peers {
		states[info.Peers[i].State]++
		wants += len(info.Peers[i].Wants)
	}
	for state, n := range states {
		m.gauge("fleet_peers", "Other brokers of the fleet that send heartbeats, by state.", float64(n), "state", state)
	}
	s := &info.Stats
	m.gauge("fleet_lent", "Jobs of this broker that are at other brokers now.", float64(s.Lent))
	m.gauge("fleet_borrowed", "Jobs of other brokers that run here now.", float64(s.Borrowed))
	m.count("fleet_lends_total", "Jobs lent to other brokers.", s.TotalLent)
	m.count("fleet_borrows_total", "Jobs borrowed from other brokers.", s.TotalBorrowed)
	m.count("fleet_returned_total", "Lent jobs that came back without having run.", s.ReturnedJobs)
	m.count("fleet_lost_total", "Lent jobs whose borrower was lost.", s.LostJobs)
	m.count("fleet_late_total", "Results that arrived after their loan had ended.", s.LateResults)
	m.count("fleet_gaps_total", "How often messages from another broker were missing and were requested again.", s.MissedMessages)
	m.count("fleet_garbage_total", "Messages that could not be read.", s.UnreadableMessages)
	m.gauge("fleet_wants", "Sets of types that other brokers have idle workers for, up to 100 per broker.", float64(wants))
	for direction, n := range map[string]uint64{"in": info.MessagesIn, "out": info.MessagesOut} {
		m.count("fleet_messages_total", "Messages on NATS, by direction.", n, "direction", direction)
	}
	for direction, n := range map[string]uint64{"in": info.BytesIn, "out": info.BytesOut} {
		m.count("fleet_bytes_total", "Bytes of messages on NATS, by direction.", n, "direction", direction)
	}
	m.histogram("fleet_round_trip_seconds", "Time that a heartbeat took to reach another broker and return.", &s.RoundTrips)
	sizes := map[float64]uint64{}
	var n uint64
	for i, v := range s.Batches {
		n += v
		sizes[float64(uint64(1)<<i)] = n
	}
	d, _ := m.desc("fleet_batch_items", "Items in a message to one broker: jobs, answers, offers.", nil)
	m.ch <- prometheus.MustNewConstHistogram(d, n, float64(s.Items), sizes)
}
