package admin

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/goccy/go-json"
)

const (
	// maxAnswer bounds an answer of /v1 in bytes. A longer listing ends early, and its key next
	// says where to continue.
	maxAnswer = 16 << 20
	// itemsPerLook is how many items of a listing the core is asked for at a time.
	itemsPerLook = 16
	// minReadBytes is how many bytes of an answer a client must read within minReadTime.
	minReadBytes = 64 << 10
	minReadTime  = 5 * time.Second
)

// answerWriter is a writer for a long answer. A client that does not read minReadBytes in time is
// disconnected.
type answerWriter struct {
	http.ResponseWriter
	ctl *http.ResponseController
}

func newAnswerWriter(w http.ResponseWriter) answerWriter {
	writeHeader(w, http.StatusOK)
	return answerWriter{w, http.NewResponseController(w)}
}

// Write implements io.Writer.
func (w answerWriter) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		// Without a connection, as in tests, there are no deadlines.
		_ = w.ctl.SetWriteDeadline(time.Now().Add(minReadTime))
		var m int
		m, err = w.ResponseWriter.Write(p[:min(len(p), minReadBytes)])
		n += m
		p = p[m:]
	}
	return n, err
}

func writeHeader(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
}

// marshalIndented returns v as indented JSON. Values from clients, such as headers, are not escaped
// for HTML.
func marshalIndented(v any, prefix string) ([]byte, error) {
	return json.MarshalIndentWithOption(v, prefix, "  ", json.DisableHTMLEscape())
}

// reply sends a short answer.
func reply(w http.ResponseWriter, status int, v any) {
	data, err := marshalIndented(v, "")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeHeader(w, status)
	_, _ = w.Write(append(data, '\n'))
}

// replyWith sends the object v with one more key, whose value is sent verbatim. If the answer would
// be too long, it sends v without that key.
func replyWith(w http.ResponseWriter, v any, key string, value []byte) error {
	data, err := marshalIndented(v, "")
	if err != nil {
		return err
	}
	if len(data)+len(key)+len(value) > maxAnswer-minReadBytes {
		reply(w, http.StatusOK, v)
		return nil
	}
	_ = sendWith(w, data, key, value)
	return nil
}

// sendWith sends an object, indented, with one more key. It returns an error if the client
// did not read all of it.
func sendWith(w http.ResponseWriter, object []byte, key string, value []byte) error {
	a := newAnswerWriter(w)
	for _, part := range [][]byte{object[:len(object)-len("\n}")], []byte(",\n  \"" + key + "\": "), value, []byte("\n}\n")} {
		if _, err := a.Write(part); err != nil {
			return err
		}
	}
	return a.ctl.Flush()
}

// array is an array of items within an answer, which is an indented object.
type array struct {
	buf       []byte
	bytesLeft int // how many more bytes the answer may have
	items     int
}

// begin appends the text that precedes the array and begins the array; end ends it.
func (a *array) begin(head string) {
	a.buf = append(append(a.buf, head...), '[')
	a.items = 0
}

func (a *array) end(tail string) {
	if a.items > 0 {
		a.buf = append(a.buf, "\n  "...)
	}
	a.buf = append(append(a.buf, ']'), tail...)
}

// add adds an item. It returns false if the item does not fit.
func (a *array) add(v any) bool {
	data, err := marshalIndented(v, "    ")
	separator := ",\n    "
	if a.items == 0 {
		separator = separator[1:]
	}
	a.bytesLeft -= len(separator) + len(data)
	if a.bytesLeft < 0 || err != nil {
		return false
	}
	a.items++
	a.buf = append(append(a.buf, separator...), data...)
	return true
}

// fill adds n more items, or as many as fit, and sends full buffers. It returns an error if
// the client has gone.
func (a *array) fill(w io.Writer, n int, item func(i int) any) error {
	for i := 0; i < n && a.add(item(i)); i++ {
		if len(a.buf) >= minReadBytes/2 {
			if err := a.send(w); err != nil {
				return err
			}
		}
	}
	return nil
}

// send writes the buffer. It returns an error if the client has gone.
func (a *array) send(w io.Writer) error {
	_, err := w.Write(a.buf)
	if a.buf = a.buf[:0]; cap(a.buf) > minReadBytes {
		a.buf = nil
	}
	return err
}

// maxLooks bounds the core queries for one page of a listing. After that the page ends, even with
// few items or no item. One query takes a tenth of a millisecond.
const maxLooks = 1024

// answerListing answers with the requested page of a listing. read(from, limit) returns up to limit
// items from that position on, and the position after them, or -1 at the end. The answer has the
// position after its items under the given key.
func answerListing[T any](a *API, w http.ResponseWriter, r *http.Request, key string, read func(from, limit int) (items []T, next int)) error {
	from, limit, err := pageParams(r)
	if err != nil {
		return err
	}
	out, list := newAnswerWriter(w), array{bytesLeft: maxAnswer - minReadBytes}
	list.begin("{\n  \"items\": ")
	full := false
	for rounds := 0; from >= 0 && limit > 0 && rounds < maxLooks && !full && r.Context().Err() == nil; rounds++ {
		a.withBuildLock(func() {
			items, next := read(from, min(limit, itemsPerLook))
			limit -= len(items)
			before := list
			for i := range items {
				if full = !list.add(&items[i]); full {
					// None of these items is sent. The next page begins with them, because the
					// position of a single item may have changed by then.
					list, next = before, from
					break
				}
			}
			from = next
		})
		if len(list.buf) >= minReadBytes/2 {
			if err := list.send(out); err != nil {
				return nil
			}
		}
	}
	tail := "\n}\n"
	if from >= 0 {
		tail = fmt.Sprintf(",\n  %q: %d\n}\n", key, from)
	}
	list.end(tail)
	_ = list.send(out)
	return nil
}
