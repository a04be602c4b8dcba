// Package page is what people see of a broker in a browser: files, which ask /v1
// for everything else. There is no build step: they are served as they stand here, but for
// the comments of our scripts, whose lines stay empty. lib has what others made, as they
// publish it.
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed index.html icon.svg *.css *.js view lib
var files embed.FS

// types are those of the files that there are; a file of no type here is not
// served.
var types = map[string]string{
	".html":    "text/html; charset=utf-8",
	".css":     "text/css; charset=utf-8",
	".js":      "text/javascript; charset=utf-8",
	".mjs":     "text/javascript; charset=utf-8",
	".svg":     "image/svg+xml",
	".LICENSE": "text/plain; charset=utf-8",
}

// file is one as it is sent.
type file struct {
	mime, tag   string
	plain, gzip []byte
}

// comments are the lines of a script that have nothing else.
var comments = regexp.MustCompile(`(?m)^[ \t]*(//.*|/\*\*([^*\n]|\*[^/\n])*(\*/)?|\*( .*|/))$`)

var all = sync.OnceValue(func() map[string]*file {
	m := map[string]*file{}
	_ = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || types[path.Ext(name)] == "" {
			return err
		}
		data, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if path.Ext(name) == ".js" && path.Dir(name) != "lib" {
			data = comments.ReplaceAll(data, nil)
		}
		sum := sha256.Sum256(data)
		m["/"+name] = &file{mime: types[path.Ext(name)], tag: hex.EncodeToString(sum[:8]), plain: data, gzip: packed(data, gzip.BestCompression)}
		return nil
	})
	return m
})

// policy lets the page load nothing, run nothing and show itself nowhere but
// what is the broker's own.
const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page's files. They hold no secret: who may see jobs is
// decided by /v1.
func ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := all()[r.URL.Path]
	if f == nil {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the page can only be read", http.StatusMethodNotAllowed)
		return
	}
	h, small := head(w, r, f.mime)
	h.Set("Cache-Control", "no-cache") // asked about each time, by its tag
	data, tag := f.plain, f.tag
	if small {
		data, tag = f.gzip, f.tag+"-gzip"
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// nothing is the place in index.html of what a visit begins with.
var nothing = []byte(">null</template>")

// Index serves the document with what a visit begins with, JSON without "<" and "&".
func Index(w http.ResponseWriter, r *http.Request, first []byte) {
	f := all()["/index.html"]
	h, small := head(w, r, f.mime)
	h.Set("Cache-Control", "no-store")
	data := bytes.Replace(f.plain, nothing, slices.Concat([]byte(">"), first, []byte("</template>")), 1)
	if small {
		data = packed(data, gzip.DefaultCompression)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// head sets what all answers have, and tells whether this one is to be packed.
func head(w http.ResponseWriter, r *http.Request, mime string) (h http.Header, small bool) {
	h = w.Header()
	if mime == types[".html"] || r.URL.Path == "/worker.js" { // what has a policy of its own
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Type", mime)
	h.Set("Vary", "Accept-Encoding")
	small = slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(s string) bool { return strings.TrimSpace(s) == "gzip" })
	if small {
		h.Set("Content-Encoding", "gzip")
	}
	return h, small
}

func packed(data []byte, level int) []byte {
	var small bytes.Buffer
	z, _ := gzip.NewWriterLevel(&small, level)
	_, _ = z.Write(data)
	_ = z.Close()
	return small.Bytes()
}
