package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
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

// TestUnwantedBodyIsRead: a client that sends the whole of a body that is too large, or encoded, before it
// reads the reply still sees why it was refused.
func TestUnwantedBodyIsRead(t *testing.T) {
	t.Parallel()
	d := start(t)
	body := strings.Repeat(" ", 40<<20)
	for header, want := range map[string]string{"X-Any: x": " 413 ", "Content-Encoding: gzip": " 415 "} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "POST /job HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n\r\n%s", len(body), header, body); err != nil {
			t.Errorf("%s: %v", header, err)
		}
		if line, _ := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, want) {
			t.Errorf("%s: %q", header, line)
		}
	}
}
