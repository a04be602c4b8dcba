package bridge

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"gloom/bench/throwaway/mariadbtest"
	gloom "gloom/clients/go"
	"gloom/cmd/jobd/config"

	"github.com/goccy/go-json"
)

// TestRemoteCrashAtEveryPoint kills A at every point between two writes of a row that it does not
// launch, while B shares its target and workers. A comes back. No row is left, none is done that has
// not run, and with orphans=fail none runs twice.
func TestRemoteCrashAtEveryPoint(t *testing.T) {
	for _, orphans := range []string{"fail", "requeue"} {
		for _, point := range []string{
			"accept: rows locked", "accept: rows claimed", "accept: before commit", "accept: after commit", "bridge: accepted",
			"remote: running", "remote: submitted", "remote: ended", "write: before commit", "write: after commit",
		} {
			t.Run(orphans+"/"+strings.ReplaceAll(point, ": ", "-"), func(t *testing.T) {
				t.Parallel()
				c := &crashScenario{testSite: newTestSite(t, mariadbtest.Shared(t)), orphans: orphans}
				c.exec("INSERT INTO jobs (target) SELECT 'a' FROM seq_1_to_20")
				s := newRestartableBroker(t)
				var mu sync.Mutex
				runs := make(map[int64]int)
				s.startWorker("rows.a", 4, func(_ context.Context, job *gloom.Job) (any, error) {
					var row struct{ ID int64 }
					err := json.Unmarshal(job.Body, &row)
					mu.Lock()
					defer mu.Unlock()
					runs[row.ID]++
					return fmt.Sprint("out ", row.ID), err
				})
				remote := func(name string, concurrency int) config.Worker {
					cfg := c.config(name, concurrency)
					cfg.Launcher, cfg.LauncherEnv = "", nil
					s.configure(&cfg)
					return cfg
				}
				a := c.start(remote(crashOwner, 3), envFault+"="+point+":1")
				c.victims = append(c.victims, a)
				<-a.ready // it has accepted rows, or has died
				c.peer = c.start(remote(crashPeer, 1))
				a.await(point)
				c.victims = append(c.victims, c.start(remote(crashOwner, 3)))
				eventually(t, "all is settled", func() bool {
					return c.queryCount("SELECT COUNT(*) FROM jobs WHERE status <> 'done'")+c.queryCount("SELECT COUNT(*) FROM jobs_claims WHERE id >= 0") == 0
				})
				mu.Lock()
				defer mu.Unlock()
				for id := int64(1); id <= 20; id++ {
					var result, stdout, stderr string
					if err := c.db.QueryRow("SELECT result, stdout, stderr FROM jobs WHERE id = ?", id).Scan(&result, &stdout, &stderr); err != nil {
						t.Fatal(err)
					}
					switch n := runs[id]; {
					case result == "ok" && (n == 0 || stdout != fmt.Sprint("out ", id)),
						result != "ok" && (orphans == "requeue" || !strings.Contains(stderr, "died")),
						n > 2, n > 1 && orphans == "fail":
						c.fail("row %d ran %d times: %s, %q, %q", id, n, result, stdout, stderr)
					}
				}
			})
		}
	}
}
