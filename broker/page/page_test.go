package page_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gloom/broker/page"
	"gloom/broker/page/pagetest"
)

// withoutIndents removes the indents of lines.
func withoutIndents(text []byte) []byte {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, " \t")
	}
	return []byte(strings.Join(lines, "\n"))
}

// withoutComments returns a script with its comment lines emptied, and without type annotations.
func withoutComments(script []byte) []byte {
	lines := strings.Split(string(script), "\n")
	inComment := false
	for i, line := range lines {
		text := strings.TrimSpace(line)
		begins := strings.HasPrefix(text, "/**")
		_, code, ends := strings.Cut(text, "*/")
		if strings.HasPrefix(text, "//") || (inComment || begins) && code == "" {
			lines[i] = ""
		}
		inComment = (inComment || begins) && !ends
		for {
			before, cast, found := strings.Cut(lines[i], "/** @type ")
			if !found {
				break
			}
			_, after, _ := strings.Cut(cast, "*/")
			lines[i] = before + strings.TrimPrefix(after, " ")
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

func testDaemon(views fstest.MapFS) page.Daemon {
	views["app.js"] = &fstest.MapFile{Data: []byte("// One view.\nimport { start } from './page.js';\nimport { all } from './view/all.js';\nstart({ views: { '': { name: 'All', draw: all } } });\n")}
	views["view/all.js"] = &fstest.MapFile{Data: []byte("import { table } from '../table.js';\nexport const all = () => table('All', [], [], x => x);\n")}
	return page.Daemon{Title: "A <daemon>", Noun: "daemon", NoScript: "<code>it</code> tells.", Views: views}
}

// TestFilesAreServedFromOneFolder: the daemon's files and the kit's are served from one folder,
// unchanged but for comments, types and indents.
func TestFilesAreServedFromOneFolder(t *testing.T) {
	site := page.New(testDaemon(fstest.MapFS{}))
	pagetest.CheckSite(t, site)
	for _, pattern := range []string{"*.css", "*.js", "*.svg", "lib/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, name := range files {
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(name) == ".js" && filepath.Dir(name) != "lib" {
				want = withoutIndents(withoutComments(want))
			} else if name == "style.css" {
				plots, err := os.ReadFile("lib/uPlot.min.css")
				if err != nil {
					t.Fatal(err)
				}
				want = append(withoutIndents(want), plots...)
			}
			if got := pagetest.Get(site, "GET", "/"+name); name != "lib/VERSIONS" && got.Body.String() != string(want) {
				t.Errorf("%s: status %d, %d bytes, want %d", name, got.Code, got.Body.Len(), len(want))
			}
		}
	}
	index := pagetest.Get(site, "GET", "/index.html").Body.String()
	for _, want := range []string{"<title>A &lt;daemon&gt;</title>", `data-noun="daemon"`, "<code>it</code> tells.", `href="view/all.js"`, `href="lib/preact.mjs"`} {
		if !strings.Contains(index, want) {
			t.Errorf("index.html lacks %s:\n%s", want, index)
		}
	}
}

// TestKitFilesCannotBeReplaced: a daemon may not replace a file of the kit.
func TestKitFilesCannotBeReplaced(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a second table.js was taken")
		}
	}()
	page.New(testDaemon(fstest.MapFS{"table.js": {Data: []byte("//")}}))
}
