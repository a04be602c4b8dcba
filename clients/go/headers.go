package gloom

import (
	"maps"
	"slices"

	"github.com/goccy/go-json"
)

// Headers accompany a job's body: one JSON object of at most 4096 bytes, passed on unchanged.
// *Headers implements OpenTelemetry's TextMapCarrier, for the W3C headers traceparent and
// tracestate.
type Headers json.RawMessage

// Get returns the string under a key, "" if there is none.
func (h *Headers) Get(key string) (value string) {
	_ = json.Unmarshal(h.fields()[key], &value) // anything but a string gives ""
	return value
}

// Set sets the string under a key. It encodes the object again.
func (h *Headers) Set(key, value string) {
	fields := h.fields()
	if fields == nil {
		fields = make(map[string]json.RawMessage, 1)
	}
	fields[key], _ = json.Marshal(value)
	*h, _ = json.Marshal(fields)
}

// Keys returns all keys, sorted.
func (h *Headers) Keys() []string { return slices.Sorted(maps.Keys(h.fields())) }

func (h *Headers) fields() (values map[string]json.RawMessage) {
	_ = json.Unmarshal(*h, &values) // anything but an object has no keys
	return values
}
