package admin

import (
	"bufio"
	"fmt"
	"net/http"
	"time"

	"github.com/goccy/go-json"
)

const (
	// maxAnswer bounds an answer of /v1 in bytes. A listing that would be
	// longer ends early and says where to go on.
	maxAnswer = 16 << 20
	// slice is how many items of a listing are asked of the core at a time.
	slice = 16
	// stride is how much of an answer a client must take within strideTime.
	stride     = 64 << 10
	strideTime = 5 * time.Second
)

// patient writes a long answer: who does not read a stride of it in time is cut.
type patient struct {
	http.ResponseWriter
	ctl *http.ResponseController
}

func begin(w http.ResponseWriter) patient {
	head(w, http.StatusOK)
	return patient{w, http.NewResponseController(w)}
}

// Write implements io.Writer.
func (w patient) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		// Without a connection, as in tests, there are no deadlines.
		_ = w.ctl.SetWriteDeadline(time.Now().Add(strideTime))
		var m int
		m, err = w.ResponseWriter.Write(p[:min(len(p), stride)])
		n += m
		p = p[m:]
	}
	return n, err
}

func head(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
}

// reply sends a short answer.
func reply(w http.ResponseWriter, status int, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	head(w, status)
	_, _ = w.Write(append(data, '\n'))
}

// replyWith sends v, an object, with one more key whose value is sent as it is;
// without it where the answer would be too long.
func replyWith(w http.ResponseWriter, v any, key string, value []byte) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	const end = "\n}\n"
	data = append(data[:len(data)-len("\n}")], ",\n  \""+key+"\": "...)
	if len(data)+len(value)+len(end) > maxAnswer {
		reply(w, http.StatusOK, v)
		return nil
	}
	a := begin(w)
	_, _ = a.Write(data)
	_, _ = a.Write(value)
	_, _ = a.Write([]byte(end))
	return nil
}

// listing answers with the page of a listing that a request asks for. some
// returns up to limit items from a place on, perhaps fewer, and the place that
// follows them, or -1 at the end.
func listing[T any](w http.ResponseWriter, r *http.Request, some func(from, limit int) (items []T, next int)) error {
	from, limit, err := page(r)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(begin(w), stride)
	_, _ = out.WriteString("{\n  \"items\": [")
	separator := "\n    "
	for left := maxAnswer - stride; from >= 0 && limit > 0 && left > 0; {
		items, next := some(from, min(limit, slice))
		limit -= len(items)
		for i := range items {
			data, err := json.MarshalIndent(&items[i], "    ", "  ")
			if err != nil {
				return err
			}
			if left -= len(separator) + len(data); left < 0 {
				_, next = some(from, i)
				break
			}
			_, _ = out.WriteString(separator)
			if _, err := out.Write(data); err != nil {
				return nil // nobody is there to read it
			}
			separator = ",\n    "
		}
		from = next
	}
	if separator[0] == ',' {
		_, _ = out.WriteString("\n  ")
	}
	_, _ = out.WriteString("]")
	if from >= 0 {
		fmt.Fprintf(out, ",\n  \"next\": %d", from)
	}
	_, _ = out.WriteString("\n}\n")
	_ = out.Flush()
	return nil
}
