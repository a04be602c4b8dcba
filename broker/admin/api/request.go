package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
)

// segmentMark is put before "." and ".." in paths, because browsers and proxies remove these
// segments. It is put before "/", because http.ServeMux takes a segment %2F for a slash at the
// path's end. No name contains it, since names are UTF-8.
const segmentMark = "\xff"

// Segment escapes any name as one segment of a path.
func Segment(name string) string {
	if needsMark(name) {
		name = segmentMark + name
	}
	return url.PathEscape(name)
}

// Name is the inverse of Segment, for a segment that has been unescaped.
func Name(segment string) string {
	if name := strings.TrimPrefix(segment, segmentMark); needsMark(name) {
		return name
	}
	return segment
}

// MarkSlashes returns r with the mark before each segment "%2F" of its path. So http.ServeMux takes
// the segment for a name even if the client has not put the mark there.
func MarkSlashes(r *http.Request) *http.Request {
	parts := strings.Split(r.URL.EscapedPath(), "/")
	slashes := false
	for i, part := range parts {
		if strings.EqualFold(part, "%2F") {
			parts[i], slashes = Segment("/"), true
		}
	}
	if !slashes {
		return r
	}
	out, to := *r, *r.URL
	to.RawPath = strings.Join(parts, "/")
	to.Path, _ = url.PathUnescape(to.RawPath)
	out.URL = &to
	return &out
}

// needsMark reports whether a name, as it is, cannot be a segment of a path.
func needsMark(name string) bool { return name == "." || name == ".." || name == "/" }

// NewRequest makes a request to a broker. Unless nil, in is its JSON body; unless empty,
// token is its bearer token.
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
