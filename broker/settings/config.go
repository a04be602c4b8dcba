package settings

import (
	"gloom/broker"
	"gloom/broker/hub"
)

const (
	// maxUnusedTypes limits the unused types that are remembered. maxKeptTypes limits the types
	// that have metrics of their own for as long as the process runs.
	maxUnusedTypes = 16_384
	maxKeptTypes   = 100
)

// maxPairs bounds the pairs of a type and a set of types that contains it. Workers that join
// with many types make many pairs: 1,000 sets of 1,000 types each make a million.
const maxPairs = 1 << 20

// TLS connections together may take MaxMemory/tlsShare.
const tlsShare = 8

// Hub returns the part of the options that concerns the hub and the core.
func (o *Options) Hub() hub.Config {
	return hub.Config{
		MaxOutbound: o.MaxOutbound, MaxUnread: o.MaxUnread, MaxInbound: o.MaxInbound, MaxTLS: o.MaxMemory / tlsShare,
		Core: broker.Config{
			MaxJobs: o.MaxJobs, MaxTypeJobs: o.MaxTypeJobs, MaxSubmitterJobs: o.MaxSubmitterJobs,
			MaxBytes: o.MaxBytes, MaxTypeBytes: o.MaxTypeBytes, MaxSubmitterBytes: o.MaxSubmitterBytes,
			MaxTypes: o.MaxTypes, MaxPairs: maxPairs, MaxGroups: o.MaxGroups, MaxUnusedTypes: min(maxUnusedTypes, o.MaxTypes), KeptTypes: min(maxKeptTypes, o.MaxTypes), Retries: o.Retries,
			DeadLetters: o.DeadLetters, DeadBytes: o.DeadBytes, DeadAge: o.DeadAge, History: o.History,
		},
	}
}
