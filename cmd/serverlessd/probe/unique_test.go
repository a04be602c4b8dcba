package probe

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gloom/bench/throwaway/mariadbtest"
)

// TestModesOfUniqueKeys: each mode does what it says, and a key is freed when it should be.
func TestModesOfUniqueKeys(t *testing.T) {
	d, client := sharedDaemon(t), freshClient()
	add := func(status int, result, query, line string) string {
		t.Helper()
		r := d.expect(t, status, "POST", "/"+client+"/job/x/add?"+query, line)
		if r.text("unique") != result {
			t.Fatalf("%s, wanted %q", r, result)
		}
		if ids := fmt.Sprint(r.json["ids"]); ids != "["+r.text("id")+"]" {
			t.Errorf("%s: id is not that of ids", r)
		}
		if made := result == "" || result == "replaced"; r.json["ok"] != true || (r.json["count"] == 1.0) != made {
			t.Errorf("%s", r)
		}
		return r.text("id")
	}
	a := add(201, "", "key=k&delay=1h", "1")
	if b := add(200, "kept", "key=k", "2"); b != a {
		t.Errorf("kept %s, wanted %s", b, a)
	}
	if b := add(200, "extended", "key=k&mode=extend&delay=3h&max_ms=7200000", "2"); b != a {
		t.Errorf("extended %s, wanted %s", b, a)
	}
	if r := d.job(t, client, a); r.text("state") != "deferred" {
		t.Errorf("%s", r)
	}
	c := add(200, "replaced", "key=k&mode=replace&wait=store", "3")
	d.expect(t, 404, "GET", "/"+client+"/job/get/"+a, "")
	d.expect(t, 200, "DELETE", "/"+client+"/job/get/"+c, "")
	e := add(201, "", "key=k&while=window&for_ms=600000", "4")
	d.addHandler(t, client, "x", "sh", "true")
	waitUntil(t, "it has run", func() error {
		if r := d.job(t, client, e); r.text("state") != "ok" {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	r := d.expect(t, 200, "POST", "/"+client+"/job/x?key=k", "5")
	if r.text("id") != e || r.text("unique") != "kept" || r.json["count"] != 0.0 {
		t.Errorf("%s, the window is of %s", r, e)
	}
	r = d.expect(t, 201, "POST", "/add?client="+client+"&jobtype=x&key=payload&wait=store", "k\nnew\nnew\n"+strings.Repeat("y", 300)+"\n")
	ids, _ := r.json["ids"].([]any)
	if result := fmt.Sprint(r.json["unique"]); result != "[<nil> <nil> kept <nil>]" && result != "[kept <nil> kept <nil>]" || len(ids) != 4 || ids[1] != ids[2] || r.json["stored"] != true || r.json["id"] != nil {
		t.Errorf("%s", r)
	}
	g := add(201, "", "key=again", "g")
	waitUntil(t, "it has run", func() error {
		if r := d.job(t, client, g); r.text("state") != "ok" {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	h := add(201, "", "key=again&delay=1h", "h")
	d.expectError(t, 409, "key_held", "POST", "/"+client+"/job/retry/"+g, "", h, "again")
	if _, err := readLedger(d, client); err != nil {
		t.Error(err)
	}
}

func TestBadUnique(t *testing.T) {
	d, client := sharedDaemon(t), freshClient()
	at := "/" + client + "/job/x/add?"
	for query, words := range map[string]string{
		"key=":                                   "invalid_value 256 0",
		"key=" + strings.Repeat("k", 257):        "invalid_value 256 257",
		"key=k&while=ever":                       "invalid_value while ever window",
		"key=k&mode=drop":                        "invalid_value mode drop extend",
		"key=k&while=window":                     "missing_field for_ms",
		"key=k&for_ms=5":                         "invalid_value for_ms needs \"while\" \"window\", \"live\"",
		"key=k&while=window&for_ms=0":            "invalid_value for_ms 0",
		"key=k&while=window&for_ms=999999999999": "invalid_value for_ms 31536000000",
		"key=k&max_ms=5":                         "invalid_value max_ms needs \"mode\" \"extend\", \"keep\"",
		"key=k&mode=extend&max_ms=x":             "invalid_value max_ms x",
		"while=live":                             "missing_field key while",
		"key=k&key=l":                            "invalid_value key 2",
		"key=k&keep=1":                           "invalid_value keep",
	} {
		want := strings.Fields(words)
		d.expectError(t, 400, want[0], "POST", at+query, "1", want[1:]...)
	}
	d.expectError(t, 400, "invalid_value", "POST", at+"key=k", "1\n2\n", "2", "key=payload")
	if r := d.expect(t, 200, "POST", at+"key=k", "\n"); r.json["count"] != 0.0 || fmt.Sprint(r.json["ids"]) != "[]" {
		t.Errorf("%s", r)
	}
}

// TestUniqueKilled: many clients add lines with one key through two daemons of a store, one of
// which is killed and started again. In the end there is one job, whichever daemon answered.
func TestUniqueKilled(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) string{
		"SQLite":  func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "shared.db") },
		"MariaDB": func(t *testing.T) string { return mariaURL(t, mariadbtest.Shared(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := []string{"--store=" + store(t)}
			dir := t.TempDir()
			first, second := startIn(t, dir, flags...), start(t, flags...)
			client := freshClient()
			var mu sync.Mutex
			madeCounts, answers, ids := map[string]int{}, 0, map[string]string{}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 16 {
				d := []*daemon{first, second}[i%2]
				wg.Go(func() {
					for n := i; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						key := fmt.Sprint(n % 7)
						r, err := d.try("POST", "/"+client+"/job/x/add?key="+key, key)
						if err != nil {
							return // killed
						}
						if r.status == 503 {
							continue
						}
						mu.Lock()
						if answers++; r.status == 201 {
							madeCounts[key]++
						}
						if id := ids[key]; id != "" && id != r.text("id") || r.status > 201 {
							t.Errorf("key %s is held by %s, and %s", key, id, r)
						}
						ids[key] = r.text("id")
						mu.Unlock()
					}
				})
			}
			waitUntil(t, "a hundred answers", func() error {
				mu.Lock()
				defer mu.Unlock()
				if answers < 100 {
					return errors.New(fmt.Sprint(answers))
				}
				return nil
			})
			first.Kill()
			secondDaemon := startIn(t, dir, flags...)
			close(stop)
			wg.Wait()
			for key, id := range ids {
				if r := secondDaemon.expect(t, 200, "POST", "/"+client+"/job/x/add?key="+key, key); madeCounts[key] > 1 || r.text("id") != id {
					t.Errorf("key %s made %d jobs, is held by %s, and %s", key, madeCounts[key], id, r)
				}
			}
			if k := secondDaemon.counts(t, client, "x"); k["added"] != 7.0 {
				t.Errorf("%v", k)
			}
		})
	}
}
