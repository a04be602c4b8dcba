// Package page is the kit for the pages of the daemons: the frame around the views, tables,
// plots, dialogs, listings, the search field, the style, and third-party libraries (lib). It
// depends on no daemon. Each daemon adds views of its own, and copies nothing from here.
//
// There is no build step: files are served as they are, with three exceptions: comments and types
// are removed from our scripts, indents are removed from all our files, and style.css includes the
// style of the plots. The files of the kit and of the daemon are in one folder, "/", so a view
// imports "../table.js".
//
// A daemon uses it as follows:
//
//   - It embeds a folder with app.js and its views, and passes it to New, together with files that
//     it shares with other daemons, such as the views of schedules. app.js passes the views to
//     start (in page.js). It imports the first one statically, and the others with lazyView
//     (in parts.js).
//   - It serves Site.ServeHTTP at each of Site.Paths, open to everybody, since files hold no
//     secret. At "/" it serves the document: with Site.Visit, which adds the replies to the
//     page's first requests, or, if a token is needed, with Site.Index and {"guarded": true}.
//   - It has GET /v1/status, whose "scopes" say what the token allows, also on a daemon
//     without tokens. The page offers only what these scopes allow: its views ask the function
//     mayUse (in api.js), or use button (in parts.js), which asks it. After a 401 or 403 the page
//     asks for a token.
//   - Live data comes from a source, which is passed to startSource (in live.js): a stream of
//     events (events.js) or a repeated request (poll.js), with GET /v1/moments for the last minutes
//     (gloom/broker/admin/moments). Both pause in hidden tabs. The source's function "sample"
//     makes the columns of the plots (plot.js) from a snapshot.
//   - Its tests use pagetest.CheckSite for the files, and the tabs of pagetest for the views.
//
// The modules, each with a comment of its own: page.js (the frame around the views, with dialogs
// and notes), parts.js (places, badges, facts, dialogs, actions, Listing), table.js (tables and
// chosen rows), plot.js, find.js, body.js (values as written), format.js (numbers, times, names),
// api.js (requests to /v1), live.js (snapshots, series) with its sources events.js and poll.js,
// verdict.js (whether everything is healthy, and findings), html.js (elements, signals).
package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed index.html icon.svg *.css *.js lib
var kitFiles embed.FS

// contentTypes are the content types of the files; a file with another extension is not served.
var contentTypes = map[string]string{
	".html":    "text/html; charset=utf-8",
	".css":     "text/css; charset=utf-8",
	".js":      "text/javascript; charset=utf-8",
	".mjs":     "text/javascript; charset=utf-8",
	".svg":     "image/svg+xml",
	".LICENSE": "text/plain; charset=utf-8",
}

// Daemon describes a daemon's page: what differs from the pages of other daemons.
type Daemon struct {
	Title string // of the window
	Noun  string // what the daemon is, such as "broker"
	// NoScript is the text, in HTML, for browsers without JavaScript.
	NoScript string
	// Views holds app.js and the files that it imports, except those of the kit.
	Views fs.FS
	// Shared holds files that several daemons share but not all; nil for none.
	Shared fs.FS
}

// folders returns where the files are.
func (d *Daemon) folders() []fs.FS {
	if d.Shared == nil {
		return []fs.FS{kitFiles, d.Views}
	}
	return []fs.FS{kitFiles, d.Shared, d.Views}
}

// Site is the page of one daemon.
type Site struct {
	daemon     Daemon
	files      func() map[string]*file // by path
	visitSlots chan struct{}           // a semaphore: it has an element for each visit that collects data
}

// file is a file in the form in which it is sent.
type file struct {
	contentType, etag string
	content, gzipped  []byte
}

// New returns the page of a daemon. It panics if two files have the same name.
func New(d Daemon) *Site {
	s := &Site{daemon: d, visitSlots: make(chan struct{}, maxVisits)}
	s.files = sync.OnceValue(s.buildFiles)
	names := map[string]bool{}
	for _, in := range d.folders() {
		for name := range fileNames(in) {
			if names[name] {
				panic(fmt.Sprintf("page: there are two files %s", name))
			}
			names[name] = true
		}
	}
	return s
}

// fileNames returns the names of the files that are served.
func fileNames(in fs.FS) map[string]bool {
	names := map[string]bool{}
	_ = fs.WalkDir(in, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && contentTypes[path.Ext(name)] != "" {
			names[name] = true
		}
		return err
	})
	return names
}

// Paths returns the paths of all files, sorted, but not that of the document, "/".
func (s *Site) Paths() (paths []string) {
	for _, in := range s.daemon.folders() {
		for name := range fileNames(in) {
			paths = append(paths, "/"+name)
		}
	}
	slices.Sort(paths)
	return paths
}

// indentPattern matches indents, which are removed to save half a kilobyte on a first visit.
var indentPattern = regexp.MustCompile(`(?m)^[ \t]+`)

// commentPattern matches the comment lines of a script.
var commentPattern = regexp.MustCompile(`(?m)^[ \t]*(//.*|/\*\*([^*\n]|\*[^/\n])*(\*/)?|\*( .*|/))$`)

// castPattern matches the type casts within a line of a script (JSDoc comments).
var castPattern = regexp.MustCompile(`/\*\* @type ([^*\n]|\*[^/\n])*\*/ ?`)

func (s *Site) buildFiles() map[string]*file {
	m := map[string]*file{}
	for _, in := range s.daemon.folders() {
		for name := range fileNames(in) {
			data, err := fs.ReadFile(in, name)
			if err != nil {
				panic(err) // they are embedded
			}
			switch {
			case name == "index.html":
				data = s.document(data)
			case path.Ext(name) == ".js" && path.Dir(name) != "lib":
				data = indentPattern.ReplaceAll(castPattern.ReplaceAll(commentPattern.ReplaceAll(data, nil), nil), nil)
			case name == "style.css": // one request less
				plots, _ := kitFiles.ReadFile("lib/uPlot.min.css")
				data = append(indentPattern.ReplaceAll(data, nil), plots...)
			}
			sum := sha256.Sum256(data)
			m["/"+name] = &file{contentType: contentTypes[path.Ext(name)], etag: hex.EncodeToString(sum[:6]), content: data, gzipped: compress(data, gzip.BestCompression)}
		}
	}
	return m
}

// document returns index.html with the daemon's texts filled in, and with preloads for the files
// that the first view needs.
func (s *Site) document(text []byte) []byte {
	var preload strings.Builder
	for _, name := range s.importedScripts() {
		fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s\">\n", name)
	}
	return []byte(strings.NewReplacer("{title}", html.EscapeString(s.daemon.Title), "{noun}", html.EscapeString(s.daemon.Noun),
		"{without}", s.daemon.NoScript, "{preload}\n", preload.String()).Replace(string(text)))
}

// importPattern matches the static imports of a script.
var importPattern = regexp.MustCompile(`(?m)^(?:import|export) .*from '(.+)';$`)

// importedScripts returns the scripts that app.js imports, directly or not, the direct imports
// first.
func (s *Site) importedScripts() []string {
	files := []string{"app.js"}
	for i := 0; i < len(files); i++ {
		var data []byte
		for _, in := range s.daemon.folders() {
			if found, err := fs.ReadFile(in, files[i]); err == nil {
				data = found
			}
		}
		for _, m := range importPattern.FindAllSubmatch(data, -1) {
			if name := path.Join(path.Dir(files[i]), string(m[1])); !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
	}
	return files[1:]
}

// contentPolicy lets the page load and run only files of the daemon itself, and forbids showing it
// in another page.
const contentPolicy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP serves the page's files. They hold no secrets: /v1 decides who may see jobs.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := s.files()[r.URL.Path]
	if f == nil {
		http.NotFound(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the page accepts only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	h, compressed := setHeaders(w, r, f.contentType)
	h.Set("Cache-Control", "no-cache") // browsers revalidate each time, with the ETag
	data, tag := f.content, f.etag
	if compressed {
		data, tag = f.gzipped, f.etag+"z"
	}
	h.Set("ETag", `"`+tag+`"`)
	if strings.Contains(r.Header.Get("If-None-Match"), h.Get("ETag")) {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeBody(w, r, data)
}

// writeBody writes the whole file as the reply. It offers no ranges: the files are small, and the
// extra headers would slow down a first visit.
func writeBody(w http.ResponseWriter, r *http.Request, data []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(data)
	}
}

// dataPlaceholder is the placeholder in index.html for the data that a visit begins with.
var dataPlaceholder = []byte(">null</template>")

// Index serves the document with the data that a visit begins with: JSON without "<" and
// "&".
func (s *Site) Index(w http.ResponseWriter, r *http.Request, initial []byte) {
	f := s.files()["/index.html"]
	h, compressed := setHeaders(w, r, f.contentType)
	h.Set("Cache-Control", "no-store")
	data := bytes.Replace(f.content, dataPlaceholder, slices.Concat([]byte(">"), initial, []byte("</template>")), 1)
	if compressed {
		data = compress(data, gzip.DefaultCompression)
	}
	writeBody(w, r, data)
}

// visitTimeout is how long a document waits for the data that is served with it. If collecting the
// data takes longer, the document is served without the data, and the page requests them.
const visitTimeout = 100 * time.Millisecond

// maxVisits limits the visits that collect data at a time. The limit includes visits that were
// served without data and still wait for it, so that goroutines do not pile up behind a handler
// that hangs.
const maxVisits = 16

// Visit serves the document together with the data that the page would request first. The keys of
// requests are the names under which the page expects the replies (see first in api.js), and the
// values are the paths. h is the daemon's own handler, which answers these requests. If h refuses
// one of them to this visitor or is late, or if there are too many visits, the document is served
// without data.
func (s *Site) Visit(w http.ResponseWriter, r *http.Request, h http.Handler, requests map[string]string) {
	first := []byte("null")
	select {
	case s.visitSlots <- struct{}{}:
	default:
		s.Index(w, r, first)
		return
	}
	answers := make(chan []byte, 1)
	visit := r.Clone(context.WithoutCancel(r.Context())) // it may outlive the request
	go func() {
		defer func() {
			<-s.visitSlots
			if recover() != nil { // the page's own request will panic, too, and be logged
				answers <- []byte("null")
			}
		}()
		body := fmt.Appendf(nil, `{"unix_ms":%d`, time.Now().UnixMilli())
		for _, name := range slices.Sorted(maps.Keys(requests)) {
			req := visit.Clone(visit.Context())
			req.URL, _ = url.Parse(requests[name]) // they are constants
			req.Method, req.RequestURI, req.Body, req.ContentLength = http.MethodGet, requests[name], http.NoBody, 0
			req.Header = http.Header{"Accept": {"application/json"}}
			got := replyRecorder{header: http.Header{}, status: http.StatusOK}
			if h.ServeHTTP(&got, req); got.status != http.StatusOK {
				answers <- []byte("null")
				return
			}
			body = fmt.Appendf(body, `,%q:%s`, name, bytes.TrimSpace(got.body.Bytes()))
		}
		var escaped bytes.Buffer
		json.HTMLEscape(&escaped, append(body, '}'))
		answers <- escaped.Bytes()
	}()
	select {
	case first = <-answers:
	case <-time.After(visitTimeout):
	}
	s.Index(w, r, first)
}

// replyRecorder collects a handler's answer.
type replyRecorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *replyRecorder) Header() http.Header         { return r.header }
func (r *replyRecorder) WriteHeader(status int)      { r.status = status }
func (r *replyRecorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// setHeaders sets the headers of all answers, and reports whether this answer must be compressed.
func setHeaders(w http.ResponseWriter, r *http.Request, mime string) (h http.Header, compressed bool) {
	h = w.Header()
	if mime == contentTypes[".html"] || r.URL.Path == "/worker.js" { // the type of files with a policy of their own
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Content-Type", mime)
	h.Add("Vary", "Accept-Encoding")
	compressed = slices.ContainsFunc(strings.Split(r.Header.Get("Accept-Encoding"), ","), func(s string) bool { return strings.TrimSpace(s) == "gzip" })
	if compressed {
		h.Set("Content-Encoding", "gzip")
	}
	return h, compressed
}

func compress(data []byte, level int) []byte {
	var buf bytes.Buffer
	z, _ := gzip.NewWriterLevel(&buf, level)
	_, _ = z.Write(data)
	_ = z.Close()
	return buf.Bytes()
}
