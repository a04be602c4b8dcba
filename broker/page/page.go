// Package page is the kit that the pages of the daemons are made of: what is drawn around the
// views, tables, plots, dialogs, listings, the field that finds, the style, and what others made
// (lib). It knows no daemon. Each one fills it with views of its own, and nothing here has a
// second copy there.
//
// There is no build step: files are served as they stand, but for the comments of our scripts,
// whose lines stay empty. Those of the kit and of the daemon are in one folder, "/", so a view
// has "../table.js" beside it.
//
// A daemon fills it so:
//
//   - It embeds a folder with app.js and its views, and gives it to New. app.js calls start of
//     page.js with the views, the first one statically imported, the others by later of parts.js.
//   - It serves Site.ServeHTTP at each of Site.Paths, open to everybody, since files hold no
//     secret, and Site.Index at "/". What Index gets as first is JSON: {"guarded": true} where a
//     token is needed; else null, or what the daemon's own scripts find in first of api.js.
//   - It has GET /v1/status, which tells with "scopes" what the token allows, also on a daemon
//     without tokens; may of api.js and button of parts.js offer what is in there and nothing
//     else. 401 and 403 bring the visitor to the door, where a token is asked for.
//   - What goes on comes from a source, given to live of live.js: a stream of events (events.js)
//     or a question that is asked again and again (poll.js). Both are quiet in hidden tabs. The
//     source has sample, which makes the columns of the plots (plots of plot.js) from a look.
//   - Its tests: pagetest.Site for the files, and the tabs of pagetest for what is seen.
//
// The modules, each with a comment of its own: page.js (start: head, door, dialog, notes), parts.js
// (places, badges, facts, dialogs, actions, Listing), table.js (with rows that are chosen), plot.js,
// find.js, body.js (values as they were written), format.js (numbers, times, names), api.js (asking
// /v1), live.js (looks, series) with its sources events.js and poll.js, html.js (elements, signals).
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
	"strings"
	"sync"
	"time"
)

//go:embed index.html icon.svg *.css *.js lib
var parts embed.FS

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

// Daemon is what differs from one page to another.
type Daemon struct {
	Title string // of the window
	Noun  string // what the daemon is, such as "broker"
	// Without says what those have who have no JavaScript, in HTML.
	Without string
	// Views has app.js, and whatever it imports that is not of the kit.
	Views fs.FS
}

// Site is the page of one daemon.
type Site struct {
	of    Daemon
	files func() map[string]*file // by path
}

// file is one as it is sent.
type file struct {
	mime, tag   string
	plain, gzip []byte
}

// New returns the page of a daemon. It panics where a file of the daemon would hide one of the kit.
func New(d Daemon) *Site {
	s := &Site{of: d}
	s.files = sync.OnceValue(s.pack)
	for name := range names(d.Views) {
		if _, err := fs.Stat(parts, name); err == nil {
			panic(fmt.Sprintf("page: the kit has %s already", name))
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

// comments are the lines of a script that have nothing else.
var comments = regexp.MustCompile(`(?m)^[ \t]*(//.*|/\*\*([^*\n]|\*[^/\n])*(\*/)?|\*( .*|/))$`)

func (s *Site) pack() map[string]*file {
	m := map[string]*file{}
	for _, in := range []fs.FS{parts, s.of.Views} {
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
			m["/"+name] = &file{mime: types[path.Ext(name)], tag: hex.EncodeToString(sum[:8]), plain: data, gzip: packed(data, gzip.BestCompression)}
		}
	}
	return m
}

// document fills in what differs, and what the first view needs, which is asked for at once.
func (s *Site) document(text []byte) []byte {
	var preload strings.Builder
	for _, name := range s.needed() {
		fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s\">\n", name)
	}
	return []byte(strings.NewReplacer("{title}", html.EscapeString(s.of.Title), "{noun}", html.EscapeString(s.of.Noun),
		"{without}", s.of.Without, "{preload}\n", preload.String()).Replace(string(text)))
}

// imports are what a script does not run without.
var imports = regexp.MustCompile(`(?m)^(?:import|export) .*from '(.+)';$`)

// needed are the scripts without which app.js does not run, the nearest first.
func (s *Site) needed() []string {
	all := []string{"app.js"}
	for i := 0; i < len(all); i++ {
		data, err := fs.ReadFile(s.of.Views, all[i])
		if err != nil {
			data, _ = fs.ReadFile(parts, all[i])
		}
		for _, m := range imports.FindAllSubmatch(data, -1) {
			if name := path.Join(path.Dir(all[i]), string(m[1])); !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all[1:]
}

// policy lets the page load nothing, run nothing and show itself nowhere but
// what is the daemon's own.
const policy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page's files. They hold no secret: who may see jobs is
// decided by /v1.
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
func (s *Site) Index(w http.ResponseWriter, r *http.Request, first []byte) {
	f := s.files()["/index.html"]
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
