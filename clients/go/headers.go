package gloom

import (
	"maps"
	"slices"

	"github.com/goccy/go-json"
)

// Headers go with a job beside its body: one JSON object of at most 4096 bytes, passed on
// unchanged. *Headers is OpenTelemetry's TextMapCarrier, for traceparent and tracestate of
// W3C.
type Headers json.RawMessage

// Get is the string under a key, "" if there is none.
func (h *Headers) Get(key string) (value string) {
	_ = json.Unmarshal(h.fields()[key], &value) // what is no string stays ""
	return value
}

// Set puts a string under a key. It writes the object anew.
func (h *Headers) Set(key, value string) {
	all := h.fields()
	if all == nil {
		all = make(map[string]json.RawMessage, 1)
	}
	all[key], _ = json.Marshal(value)
	*h, _ = json.Marshal(all)
}

// Keys are all keys, sorted.
func (h *Headers) Keys() []string { return slices.Sorted(maps.Keys(h.fields())) }

func (h *Headers) fields() (all map[string]json.RawMessage) {
	_ = json.Unmarshal(*h, &all) // what is no object has no keys
	return all
}
