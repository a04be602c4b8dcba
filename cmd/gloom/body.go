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

// toBody makes a body of bytes that came from outside. One line end is taken
// off text.
func toBody(data []byte, form string) (json.RawMessage, error) {
	if form == formBase64 {
		return quote(base64.StdEncoding.EncodeToString(data)), nil
	}
	if !utf8.Valid(data) {
		return nil, errNotUTF8
	}
	if form != formText {
		// encoding/json is the judge of validity everywhere in Gloom.
		if v := bytes.TrimSpace(data); stdjson.Valid(v) {
			return v, nil
		} else if form == formJSON {
			return nil, notJSON(v)
		}
	}
	return quote(string(chomp(data))), nil
}

// notJSON says where JSON goes wrong.
func notJSON(data []byte) error {
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

// chomp takes one line end off.
func chomp(b []byte) []byte {
	b = bytes.TrimSuffix(b, []byte("\n"))
	return bytes.TrimSuffix(b, []byte("\r"))
}

// fromBody is a body for people and programs: a string's content, anything else
// as it is; with formJSON strings, too, and with formBase64 what a string encodes.
func fromBody(body json.RawMessage, form string) ([]byte, error) {
	var s string
	isText := len(body) > 0 && body[0] == '"' && stdjson.Unmarshal(body, &s) == nil
	switch {
	case form == formBase64:
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil || !isText {
			return nil, errors.New("is no string in base64")
		}
		return data, nil
	case isText && form != formJSON:
		return []byte(s), nil
	}
	return body, nil
}

// bodyText is fromBody for people.
func bodyText(body json.RawMessage) []byte {
	data, _ := fromBody(body, formAuto)
	return data
}

// oneLine is a body without line ends between its tokens.
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
