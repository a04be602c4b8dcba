package result

import (
	"encoding/base64"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gloom/bench/proc"
)

// Round is one measurement. Figures of the server are missing when its process is not known.
type Round struct {
	Seconds      float64     `json:"seconds"` // measured, without warm-up
	Jobs         int64       `json:"jobs"`    // jobs answered in that time
	ServerCPU    int64       `json:"server_cpu_ns,omitempty"`
	GeneratorCPU int64       `json:"generator_cpu_ns"`
	OthersCPU    float64     `json:"others_cpu"` // processors that all other programs kept busy: noise
	BytesIn      int64       `json:"bytes_in"`   // into the generator
	BytesOut     int64       `json:"bytes_out"`
	Server       *proc.Usage `json:"server,omitempty"` // at the end of the measurement
	Latency      *Latency    `json:"latency,omitempty"`
	Backlog      *Backlog    `json:"backlog,omitempty"`
	Idle         *Idle       `json:"idle,omitempty"`
	Samples      []Sample    `json:"samples,omitempty"`

	Failed           int64            `json:"failed,omitempty"`      // ended in an error that the load may cause
	Forgotten        int64            `json:"forgotten,omitempty"`   // outstanding when their submitter hung up
	Redelivered      int64            `json:"redelivered,omitempty"` // handed out more often than submitted
	Deferred         int64            `json:"deferred,omitempty"`    // sent more than 1 ms late by the generator itself
	WorkerHangups    int64            `json:"workers_hung_up,omitempty"`
	SubmitterHangups int64            `json:"submitters_hung_up,omitempty"`
	Faults           map[string]int64 `json:"faults,omitempty"`
	FaultSamples     []string         `json:"fault_samples,omitempty"`
}

// Backlog holds the figures of a queue that is filled while no worker is connected, then drained. The
// round's seconds, jobs and CPU are those of the drain.
type Backlog struct {
	FillSeconds float64 `json:"fill_seconds"`
	FillCPU     int64   `json:"fill_server_cpu_ns,omitempty"`
	RSSEmpty    int64   `json:"rss_empty_bytes,omitempty"` // connected, nothing queued
	RSSFull     int64   `json:"rss_full_bytes,omitempty"`
	RSSDrained  int64   `json:"rss_drained_bytes,omitempty"`
}

// Idle holds what workers without jobs cost.
type Idle struct {
	Workers   int     `json:"workers"`
	Seconds   float64 `json:"seconds"` // time to connect and join the workers
	RSSBefore int64   `json:"rss_before_bytes,omitempty"`
	RSSAfter  int64   `json:"rss_after_bytes,omitempty"`
}

// Sample is one part of a round: an interval of a long round, or one disturbance.
type Sample struct {
	Name        string  `json:"name,omitempty"`
	At          float64 `json:"at_s"` // its end
	Jobs        int64   `json:"jobs"`
	P50         int64   `json:"p50_ns"`
	P99         int64   `json:"p99_ns"`
	Max         int64   `json:"max_ns"`
	RSS         int64   `json:"rss_bytes,omitempty"`
	Descriptors int     `json:"descriptors,omitempty"`
}

// Latency summarizes a distribution of latencies, in nanoseconds.
type Latency struct {
	Count int64 `json:"count"`
	P50   int64 `json:"p50_ns"`
	P90   int64 `json:"p90_ns"`
	P99   int64 `json:"p99_ns"`
	P999  int64 `json:"p999_ns"`
	P9999 int64 `json:"p9999_ns"`
	Max   int64 `json:"max_ns"`
	// Histogram is the complete distribution: HdrHistogram's compressed V2 log, in base64.
	Histogram string `json:"histogram"`
}

// NewLatency returns the summary of a histogram, or nil if it is empty.
func NewLatency(h *hdrhistogram.Histogram) (*Latency, error) {
	if h.TotalCount() == 0 {
		return nil, nil
	}
	text, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode histogram: %w", err)
	}
	return &Latency{
		Count: h.TotalCount(), P50: h.ValueAtQuantile(50), P90: h.ValueAtQuantile(90), P99: h.ValueAtQuantile(99),
		P999: h.ValueAtQuantile(99.9), P9999: h.ValueAtQuantile(99.99), Max: h.Max(), Histogram: string(text),
	}, nil
}

// Latency returns the latency of all rounds together, or nil if none was recorded.
func (r *Run) Latency() (total *hdrhistogram.Histogram, err error) {
	for _, round := range r.Rounds {
		if round.Latency == nil {
			continue
		}
		h, err := round.Latency.Decode()
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", r.Shape, r.Server.Kind, err)
		}
		if total == nil {
			total = h
		} else {
			total.Merge(h)
		}
	}
	return total, nil
}

// Decode returns the complete distribution.
func (l *Latency) Decode() (*hdrhistogram.Histogram, error) {
	if _, err := base64.StdEncoding.DecodeString(l.Histogram); err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	h, err := hdrhistogram.Decode([]byte(l.Histogram))
	if err != nil {
		return nil, fmt.Errorf("histogram: %w", err)
	}
	return h, nil
}
