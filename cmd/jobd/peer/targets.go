package peer

import (
	"encoding/json"
	"errors"
	"fmt"

	"gloom/cmd/jobd/eot"
)

// Targets reads the member "targets" of a request's data. It returns nil, which means all targets,
// if there is no such member or the data is not an object.
func Targets(data json.RawMessage) ([]string, error) {
	raw := eot.Object(eot.Members(data)).Get("targets")
	if raw == nil {
		return nil, nil
	}
	if !eot.IsArray(raw) {
		return nil, errors.New("targets must be array")
	}
	elements := eot.Elements(raw)
	if len(elements) == 0 {
		return nil, errors.New("targets are empty")
	}
	targets := make([]string, 0, len(elements))
	for _, e := range elements {
		if t := eot.TypeOf(e); t != "string" {
			return nil, fmt.Errorf("all targets must be strings, %s given", t)
		}
		targets = append(targets, eot.String(e))
	}
	return targets, nil
}

// Args reads the data of a request as an object with these fields; a request without data counts as
// an empty object.
func Args(data json.RawMessage, fields ...eot.Field) (eot.Object, error) {
	if data == nil {
		data = json.RawMessage("{}")
	}
	return eot.ParseObject(data, fields...)
}
