package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestChunkedBodyMayBeEmpty: an operator's action that needs no body takes an empty one whose length
// was not announced.
func TestChunkedBodyMayBeEmpty(t *testing.T) {
	t.Parallel()
	d := start(t)
	c := d.client(t, jsonType)
	for body, want := range map[string]int{"": 204, "{}": 204, `{"no":1}`: 400} {
		id := c.enqueue(`{"name":"n","argument":{}}`)
		req, err := http.NewRequest("POST", d.url+"/v1/jobs/"+id+"/cancel", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", jsonType)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("with the body %q: %s, want %d", body, resp.Status, want)
		}
	}
}
