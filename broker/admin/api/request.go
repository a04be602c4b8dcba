package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

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
