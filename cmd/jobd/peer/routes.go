package peer

import (
	"context"
	"encoding/json"

	gojson "github.com/goccy/go-json"
)

// Handler handles one request. data is nil if the request has none, or data that JavaScript treats
// as false. The result becomes the data of the response: raw JSON unchanged, the Data of a
// DeferredReply, any other value encoded. An error becomes the response's error. The context ends
// with the connection.
type Handler func(ctx context.Context, c *Conn, data json.RawMessage) (any, error)

// Route says how a request type is served.
type Route struct {
	Handle Handler
	// Waits says that the handler may take long: it gets its own goroutine, and later requests
	// of the connection may overtake it. Other requests are handled one after the other, in the
	// order in which they arrived.
	Waits bool
}

// Routes are the request types that a daemon knows.
type Routes map[string]Route

// DeferredReply is a result with a function that is called once the response is queued.
type DeferredReply struct {
	Data any
	Do   func()
}

// OK is the data of a response without a result.
const OK = "ok"

// Marshal encodes a value as JSON without HTML escapes, as JSON.stringify does.
func Marshal(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return v, nil
	}
	return gojson.MarshalWithOption(v, gojson.DisableHTMLEscape())
}
