package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadmeNamesAllKeys: the tables of the README name exactly the keys that are read.
func TestReadmeNamesAllKeys(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	worker, master, jobctl := reader{unnamedSection: &section{}}, reader{unnamedSection: &section{}}, reader{unnamedSection: &section{}}
	readWorker(&document{sections: []*section{{}}}, &worker)
	readMaster(nil, &master)
	readJobctl(nil, &jobctl)
	for title, known := range map[string][]string{
		"### jobd.conf\n":        append(worker.known, "launcher.env.X"),
		"### jobd-master.conf\n": master.known,
		"### .jobctl.conf\n":     jobctl.known,
	} {
		_, part, found := strings.Cut(string(text), title)
		if !found {
			t.Fatalf("no %s", title)
		}
		part, _, _ = strings.Cut(part, "\n#")
		var keys []string
		for line := range strings.Lines(part) {
			if cells := strings.Split(line, "|"); len(cells) > 2 && !strings.Contains(cells[1], "---") {
				for _, m := range regexp.MustCompile("`([a-z_.A-Z]+)`").FindAllStringSubmatch(cells[1], -1) {
					keys = append(keys, m[1])
				}
			}
		}
		slices.Sort(keys)
		known = slices.DeleteFunc(known, func(key string) bool { return key == "targets" })
		slices.Sort(known)
		if diff := cmp.Diff(slices.Compact(known), keys); diff != "" {
			t.Errorf("%s%s", title, diff)
		}
	}
}

// TestReadmeShowsTable: the README shows the same table of rows as the example.
func TestReadmeShowsTable(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	table, sqlErr := os.ReadFile("examples/jobs.sql")
	if err != nil || sqlErr != nil || len(table) == 0 || !strings.Contains(string(text), "```sql\n"+string(table)+"```") {
		t.Errorf("README.md and jobs.sql differ: %v, %v", err, sqlErr)
	}
}
