// Package page is the kit that the pages of the daemons are made of: the frame around the views,
// tables, plots, dialogs, listings, the search field, the style, and third-party libraries
// (lib). It knows no daemon. Each daemon fills it with views of its own, and has no copy of
// anything in here.
//
// There is no build step: files are served as they are, except that lines of our scripts with
// nothing but a comment are empty. The files of the kit and of the daemon are in one folder,
// "/", so a view has "../table.js" beside it.
//
// A daemon uses it as follows:
//
//   - It embeds a folder with app.js and its views, and gives it to New, beside what it shares with
//     other daemons, such as the views of schedules. app.js calls start of
//     page.js with the views, the first one statically imported, the others by later of parts.js.
//   - It serves Site.ServeHTTP at each of Site.Paths, open to everybody, since files hold no
//     secret, and Site.Index at "/". The argument first of Index is JSON: {"guarded": true} if a
//     token is needed; else null, or data for the daemon's own scripts, in first of api.js.
//   - It has GET /v1/status, whose "scopes" say what the token allows, also on a daemon
//     without tokens; may of api.js and button of parts.js offer only what these scopes
//     allow. 401 and 403 bring the visitor to the page that asks for a token.
//   - Live data comes from a source, given to live of live.js: a stream of events (events.js)
//     or a request that is repeated again and again (poll.js). Both are quiet in hidden tabs. The
//     source has sample, which makes the columns of the plots (plots of plot.js) from a snapshot.
//   - Its tests use pagetest.Site for the files, and the tabs of pagetest for the views.
//
// The modules, each with a comment of its own: page.js (start: head, door, dialog, notes), parts.js
// (places, badges, facts, dialogs, actions, Listing), table.js (with rows that are chosen),
// plot.js, find.js, body.js (values as they were written), format.js (numbers, times, names),
// api.js (requests to /v1), live.js (snapshots, series) with its sources events.js and poll.js,
// verdict.js (whether all is well, and findings), html.js (elements, signals).
package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed index.html icon.svg *.css *.js lib
var parts embed.FS

// types are the content types of the files; a file with another ending is not served.
var types = map[string]string{
	".html":    "text/html; charset=utf-8",
	".css":     "text/css; charset=utf-8",
	".js":      "text/javascript; charset=utf-8",
	".mjs":     "text/javascript; charset=utf-8",
	".svg":     "image/svg+xml",
	".LICENSE": "text/plain; charset=utf-8",
}

// Daemon is what differs from one page to another.
type Daemon struct {
	Title string // of the window
	Noun  string // what the daemon is, such as "broker"
	// Without is the text, in HTML, for browsers without JavaScript.
	Without string
	// Views has app.js, and the files that it imports and the kit does not have.
	Views fs.FS
	// Shared has what some daemons have alike, and the kit not; nil: nothing.
	Shared fs.FS
}

// folders are where the files are.
func (d *Daemon) folders() []fs.FS {
	if d.Shared == nil {
		return []fs.FS{parts, d.Views}
	}
	return []fs.FS{parts, d.Shared, d.Views}
}

// Site is the page of one daemon.
type Site struct {
	of    Daemon
	files func() map[string]*file // by path
}

// file is a file in the form in which it is sent.
type file struct {
	mime, tag   string
	plain, gzip []byte
}

// New returns the page of a daemon. It panics if a file would hide another one, as of the kit.
func New(d Daemon) *Site {
	s := &Site{of: d}
	s.files = sync.OnceValue(s.pack)
	known := map[string]bool{}
	for _, in := range d.folders() {
		for name := range names(in) {
			if known[name] {
				panic(fmt.Sprintf("page: there are two of %s", name))
			}
			known[name] = true
		}
	}
	return s
}

// names are those of the files that are served.
func names(in fs.FS) map[string]bool {
	all := map[string]bool{}
	_ = fs.WalkDir(in, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && types[path.Ext(name)] != "" {
			all[name] = true
		}
		return err
	})
	return all
}

// Paths are those of all files, in order, without "/".
func (s *Site) Paths() []string { return slices.Sorted(maps.Keys(s.files())) }

// comments are the lines of a script that have nothing but a comment.
var comments = regexp.MustCompile(`(?m)^[ \t]*(//.*|/\*\*([^*\n]|\*[^/\n])*(\*/)?|\*( .*|/))$`)

func (s *Site) pack() map[string]*file {
	m := map[string]*file{}
	for _, in := range s.of.folders() {
		for name := range names(in) {
			data, err := fs.ReadFile(in, name)
			if err != nil {
				panic(err) // they are embedded
			}
			switch {
			case name == "index.html":
				data = s.document(data)
			case path.Ext(name) == ".js" && path.Dir(name) != "lib":
				data = comments.ReplaceAll(data, nil)
			}
			sum := sha256.Sum256(data)
			m["/"+name] = &file{mime: types[path.Ext(name)], tag: hex.EncodeToString(sum[:6]), plain: data, gzip: packed(data, gzip.BestCompression)}
		}
	}
	return m
}

// document fills in the parts that differ, and preloads the files that the first view needs.
func (s *Site) document(text []byte) []byte {
	var preload strings.Builder
	for _, name := range s.needed() {
		fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s\">\n", name)
	}
	return []byte(strings.NewReplacer("{title}", html.EscapeString(s.of.Title), "{noun}", html.EscapeString(s.of.Noun),
		"{without}", s.of.Without, "{preload}\n", preload.String()).Replace(string(text)))
}

// imports are the scripts that a script imports statically.
var imports = regexp.MustCompile(`(?m)^(?:import|export) .*from '(.+)';$`)

// needed are the scripts without which app.js does not run, the nearest first.
func (s *Site) needed() []string {
	all := []string{"app.js"}
	for i := 0; i < len(all); i++ {
		var data []byte
		for _, in := range s.of.folders() {
			if found, err := fs.ReadFile(in, all[i]); err == nil {
				data = found
			}
		}
		for _, m := range imports.FindAllSubmatch(data, -1) {
			if name := path.Join(path.Dir(all[i]), string(m[1])); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all[1:]
}

// policy lets the page load and run only files of the daemon itself, and be shown in no
// other page.
const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page's files. They hold no secret: /v1 decides who may see jobs.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := s.files()[r.URL.Path]
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
	h.Set("Cache-Control", "no-cache") // browsers ask each time, with its tag
	data, tag := f.plain, f.tag
	if small {
		data, tag = f.gzip, f.tag+"z"
	}
	h.Set("ETag", `"`+tag+`"`)
	if strings.Contains(r.Header.Get("If-None-Match"), h.Get("ETag")) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	send(w, r, data)
}

// send answers with all of a file: nobody asks for parts of one so small, and what that needs in
// the head counts on a first visit.
func send(w http.ResponseWriter, r *http.Request, data []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(data)
	}
}

// nothing marks the place in index.html for the data of a visit's beginning.
var nothing = []byte(">null</template>")

// Index serves the document with the data of a visit's beginning: JSON without "<" and
// "&".
func (s *Site) Index(w http.ResponseWriter, r *http.Request, first []byte) {
	f := s.files()["/index.html"]
	h, small := head(w, r, f.mime)
	h.Set("Cache-Control", "no-store")
	data := bytes.Replace(f.plain, nothing, slices.Concat([]byte(">"), first, []byte("</template>")), 1)
	if small {
		data = packed(data, gzip.DefaultCompression)
	}
	send(w, r, data)
}

// head sets the headers of all answers, and tells whether this answer is to be
// compressed.
func head(w http.ResponseWriter, r *http.Request, mime string) (h http.Header, small bool) {
	h = w.Header()
	if mime == types[".html"] || r.URL.Path == "/worker.js" { // files with a policy of their own
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Type", mime)
	h.Add("Vary", "Accept-Encoding")
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
