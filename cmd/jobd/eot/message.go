package eot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Kind is the first element of a message.
type Kind uint8

// The kinds of messages.
const (
	Request Kind = iota
	Response
	Ping
	Pong
)

// Num is the number that links a response to its request. Peers store it in a double, so an integer
// beyond 2^53 is rounded. A response to a message whose number is unknown has 0.
type Num float64

func (n Num) String() string { return formatNumber(float64(n)) }

// Message is one message of any kind.
type Message struct {
	Kind     Kind
	Num      Num             // requests and responses
	Type     string          // requests
	Password string          // requests; "" if there is none
	Data     json.RawMessage // requests and responses; nil if there is none
	Error    string          // responses; "" if there is none
}

// ErrMalformed is the error for a message that is not JSON. Such a message gets no answer.
var ErrMalformed = errors.New("message is not JSON")

// Error is the error for JSON that is not a valid message. Its text is sent to the peer in a
// response with number 0.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

var (
	requestFields = []Field{
		{"type", "s", true}, // if both are missing, the type is reported
		{"no", "i", true},
		{"password", "s", false},
		{"data", "snoa", false},
	}
	responseFields = []Field{
		{"no", "i", true},
		{"data", "snoa", false},
		{"error", "s", false},
	}
)

// Decode decodes a message that Splitter has returned. Data that JavaScript treats as false (null,
// 0, an empty string) counts as absent. The message refers to the payload. The error is
// ErrMalformed or an *Error.
func Decode(payload []byte) (Message, error) {
	if !json.Valid(payload) {
		return Message{}, ErrMalformed
	}
	raw := payload
	if !utf8.Valid(payload) {
		// Bytes that are not UTF-8 can occur only in strings, where they become U+FFFD.
		raw = bytes.Map(func(r rune) rune { return r }, payload)
	}
	if !IsArray(raw) {
		return Message{}, &Error{"JSON array expected, got: " + jsString(raw)}
	}
	var kind, data json.RawMessage
	elements := Elements(raw)
	if len(elements) > 0 {
		kind = elements[0]
	}
	if len(elements) > 1 {
		data = elements[1]
	}
	n, isNumber := parseNumber(kind)
	if !isNumber {
		n = -1
	}
	switch n {
	case float64(Request):
		return decodeRequest(data)
	case float64(Response):
		return decodeResponse(data)
	case float64(Ping):
		return Message{Kind: Ping}, nil
	case float64(Pong):
		return Message{Kind: Pong}, nil
	}
	return Message{}, &Error{"unexpected type " + jsString(kind)}
}

func decodeRequest(data json.RawMessage) (Message, error) {
	o, err := ParseObject(data, requestFields...)
	if err != nil {
		return Message{}, &Error{fmt.Sprintf("malformed REQUEST message: %v", err)}
	}
	m := Message{Kind: Request, Type: String(o.Get("type")), Password: String(o.Get("password")), Data: nilIfNull(o.Get("data"))}
	m.Num, _ = Integer(o.Get("no"))
	return m, nil
}

func decodeResponse(data json.RawMessage) (Message, error) {
	o, err := ParseObject(data, responseFields...)
	if err != nil {
		return Message{}, &Error{fmt.Sprintf("malformed RESPONSE message: %v", err)}
	}
	m := Message{Kind: Response, Error: String(o.Get("error")), Data: nilIfNull(o.Get("data"))}
	m.Num, _ = Integer(o.Get("no"))
	return m, nil
}

func nilIfNull(data json.RawMessage) json.RawMessage {
	if !IsTruthy(data) {
		return nil
	}
	return data
}

// Append appends the message and its End to dst. Data must be JSON; peers
// refuse booleans, so true and false are written as 1 and 0, and null is left
// out.
func (m Message) Append(dst []byte) []byte {
	dst = append(dst, '[', '0'+byte(m.Kind))
	if m.Kind == Request || m.Kind == Response {
		dst = append(dst, `,{"no":`...)
		dst = append(dst, m.Num.String()...)
		if m.Kind == Request {
			dst = append(dst, `,"type":`...)
			dst = AppendString(dst, m.Type)
		}
		if m.Error != "" {
			dst = append(dst, `,"error":`...)
			dst = AppendString(dst, m.Error)
		}
		dst = appendData(dst, m.Data)
		if m.Password != "" {
			dst = append(dst, `,"password":`...)
			dst = AppendString(dst, m.Password)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']', End)
}

func appendData(dst []byte, data json.RawMessage) []byte {
	switch firstByte(data) {
	case 0, 'n':
		return dst
	case 't':
		data = json.RawMessage("1")
	case 'f':
		data = json.RawMessage("0")
	}
	return append(append(dst, `,"data":`...), data...)
}
