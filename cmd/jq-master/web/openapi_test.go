package web

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func description(t testing.TB) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err == nil {
		err = doc.Validate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestFileDescribesEveryPath: the file describes exactly the paths and methods that the master
// serves, and the path that a worker serves.
func TestFileDescribesEveryPath(t *testing.T) {
	doc := description(t)
	served := map[string]bool{"GET /metrics": true, "POST /worker-job": true, "HEAD /job/{id}": true, "HEAD /job/{id}/polling": true}
	for path, methods := range routes {
		for m := range methods {
			served[m+" "+path] = true
		}
	}
	for path, item := range doc.Paths.Map() {
		for m := range item.Operations() {
			if !served[m+" "+path] {
				t.Errorf("%s %s is not served", m, path)
			}
			delete(served, m+" "+path)
		}
	}
	for op := range served {
		t.Errorf("%s is not described", op)
	}
}
