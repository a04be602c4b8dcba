package guard

import (
	"io"
	"net/http"
	"time"
)

// ReadOn returns a handler that does as h, and then reads and drops what h has left unread of the
// request's body: a client that is still sending would otherwise see that the connection is reset,
// and not why the request was refused. Time and bytes are bounded. The connection of a body that was
// not read to its end is closed: the server would take the rest of it for another request.
func ReadOn(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 0 {
			h.ServeHTTP(w, r)
			return
		}
		server := http.NewResponseController(w)
		_ = server.EnableFullDuplex() // a reply does not wait for the body
		body := &requestBody{ReadCloser: r.Body, w: w}
		read := *r // the server looks at the body of r
		read.Body = body
		h.ServeHTTP(w, &read)
		if awaits100 := !body.isRead && r.Header.Get("Expect") != ""; body.err != nil || awaits100 {
			return
		}
		_ = server.Flush()
		_ = server.SetReadDeadline(time.Now().Add(readOnTime))
		_, _ = io.CopyN(io.Discard, body, readOnBytes)
		if body.err != io.EOF && r.ProtoMajor == 1 {
			panic(http.ErrAbortHandler) // it closes the connection
		}
	})
}

const (
	readOnTime  = 30 * time.Second
	readOnBytes = 256 << 20
)

// requestBody notes whether a body is read, and the error at its end. After another error than io.EOF
// the server closes the connection with the reply, which the handler has yet to write.
type requestBody struct {
	io.ReadCloser
	w      http.ResponseWriter
	isRead bool
	err    error
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.isRead, b.err = true, err
	if err != nil && err != io.EOF {
		b.w.Header().Set("Connection", "close")
	}
	return n, err
}

// HasNoBody reports whether a request has no body, or an empty one whose length was not announced.
// It reads a byte of any other body.
func HasNoBody(r *http.Request) bool {
	n, err := r.Body.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}
