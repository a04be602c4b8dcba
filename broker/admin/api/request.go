package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// mark comes before "." and ".." in paths, which browsers and proxies take these out
// of. It is in no name, since names are UTF-8.
const mark = "\xff"

// Segment makes a part of a path of a name, whatever is in it.
func Segment(name string) string {
	if name == "." || name == ".." {
		name = mark + name
	}
	return url.PathEscape(name)
}

// Name is the name that a part of a path means, unescaped.
func Name(segment string) string {
	if name := strings.TrimPrefix(segment, mark); name == "." || name == ".." {
		return name
	}
	return segment
}

// NewRequest makes a request of a broker, with in, unless it is nil, as its body and
// the token, unless it is empty.
func NewRequest(ctx context.Context, method, url, token string, in any) (*http.Request, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return req, nil
}
