package main

import (
	"bytes"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-json"
)

// Ways to read text as a body, or output as an answer.
const (
	formAuto = "auto" // JSON if it is JSON, else a string
	formText = "text" // always a string
	formJSON = "json" // must be JSON

	formBase64 = "base64" // bytes, as a string in base64
)

var errNotUTF8 = errors.New("is not UTF-8")

// toBody returns a body for bytes that came from outside. It removes one line end from text.
func toBody(data []byte, form string) (json.RawMessage, error) {
	if form == formBase64 {
		return quote(base64.StdEncoding.EncodeToString(data)), nil
	}
	if !utf8.Valid(data) {
		return nil, errNotUTF8
	}
	if form != formText {
		// everywhere in Gloom, encoding/json decides what is valid.
		if v := bytes.TrimSpace(data); stdjson.Valid(v) {
			return v, nil
		} else if form == formJSON {
			return nil, jsonError(v)
		}
	}
	return quote(string(trimLineEnd(data))), nil
}

// jsonError returns an error that says where JSON is invalid.
func jsonError(data []byte) error {
	var v stdjson.RawMessage
	err := stdjson.Unmarshal(data, &v)
	var syntax *stdjson.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("is not JSON: %w, at byte %d", err, syntax.Offset)
	}
	return errors.New("is not JSON")
}

func quote(s string) json.RawMessage {
	b, err := json.MarshalWithOption(s, json.DisableHTMLEscape())
	if err != nil {
		panic(err) // strings cannot fail
	}
	return b
}

// trimLineEnd removes one line end.
func trimLineEnd(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return bytes.TrimSuffix(b, []byte("\r"))
}

// fromBody returns a body as people and programs read it: the content of a string, and any other JSON
// unchanged. With formJSON a string stays unchanged, too; with formBase64 fromBody returns the bytes that
// a string encodes.
func fromBody(body json.RawMessage, form string) ([]byte, error) {
	var s string
	isText := len(body) > 0 && body[0] == '"' && stdjson.Unmarshal(body, &s) == nil
	switch {
	case form == formBase64:
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil || !isText {
			return nil, errors.New("is not a string in base64")
		}
		return data, nil
	case isText && form != formJSON:
		return []byte(s), nil
	}
	return body, nil
}

// bodyText returns the content of a string, and any other JSON unchanged.
func bodyText(body json.RawMessage) []byte {
	data, _ := fromBody(body, formAuto)
	return data
}

// oneLine returns a body without line ends between its tokens.
func oneLine(body json.RawMessage) json.RawMessage {
	if bytes.IndexByte(body, '\n') < 0 && bytes.IndexByte(body, '\r') < 0 {
		return body
	}
	var b bytes.Buffer
	if err := stdjson.Compact(&b, body); err != nil {
		return body
	}
	return b.Bytes()
}
