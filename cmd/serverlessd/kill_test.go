package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/mariadbtest"
	"gloom/broker/server"
	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/launch"

	"github.com/rs/zerolog"
)

// envFault is set when the test binary is to run as the daemon that the tests kill.
const envFault = "TEST_DAEMON_FAULT" // name:count, the point at which it is killed; or "-"

var (
	killSeed  = flag.Uint64("kill-seed", 0, "of the moments at which TestKills kills; 0: random")
	killWalks = flag.Int("kill-walks", 1, "how many passages of each moment TestKills tries")
)

func TestMain(m *testing.M) {
	launch.Main()
	if at := os.Getenv(envFault); at != "" {
		os.Unsetenv(envFault)
		failpoint.Hook = failpointHook(at)
		os.Exit(cli.Execute(command(), os.Args[1:], os.Stderr))
	}
	os.Exit(mariadbtest.Main(m))
}

// failpointHook kills the process, as kill -9 does, when it passes a failpoint for the count-th time.
func failpointHook(at string) func(string) {
	name, count, _ := strings.Cut(at, "#")
	left := 1
	fmt.Sscan(count, &left)
	var mu sync.Mutex
	return func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if point == name {
			if left--; left == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
}

// testSite is a directory with a daemon that runs, is killed and is started again.
type testSite struct {
	t       *testing.T
	dir     string
	name    string // the name of its data directory
	addr    string
	args    []string
	daemons []*throwaway.Daemon
}

func newTestSite(t *testing.T, args ...string) *testSite {
	s := &testSite{t: t, dir: t.TempDir(), name: "data", args: args}
	t.Cleanup(func() {
		for _, d := range s.daemons {
			d.Kill()
			if t.Failed() {
				t.Logf("a daemon's log:\n%s", &d.Log)
			}
		}
	})
	return s
}

// start starts the daemon. The daemon may have died again when start returns.
func (s *testSite) start(at string) {
	s.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"--addr", "127.0.0.1:0", "--dir", s.dataDir(), "--langs", "sh",
		"--sweep", "200ms", "--retry-delay", "50ms", "--batch", "3", "--concurrency", "2"}, s.args...)...)
	cmd.Env = append(os.Environ(), envFault+"="+at, "RUNS="+s.runsPath(), "TMPDIR="+s.dir)
	d, err := throwaway.Start(cmd, "serverlessd is ready")
	if err != nil && d.Running() {
		s.t.Fatal(err)
	}
	s.daemons, s.addr = append(s.daemons, d), d.Field("addr")
	s.waitUntil("the daemon answers", func() bool {
		if s.hasDied() {
			return true
		}
		resp, err := http.Get("http://" + s.addr + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
}

// hasDied reports whether the daemon that was started last has ended.
func (s *testSite) hasDied() bool { return !s.daemons[len(s.daemons)-1].Running() }

func (s *testSite) dataDir() string  { return filepath.Join(s.dir, s.name) }
func (s *testSite) runsPath() string { return filepath.Join(s.dir, "runs") }

func (s *testSite) waitUntil(label string, cond func() bool) {
	s.t.Helper()
	for end := time.Now().Add(testTimeout); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited in vain until %s", label)
		}
	}
}

// post sends a request, and reports whether it was answered with 200.
func (s *testSite) post(method, path, body string) bool {
	req, err := http.NewRequest(method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		s.t.Logf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	return err == nil && resp.StatusCode == http.StatusOK
}

// addHandler adds a handler that appends the job's id and payload to a file.
func (s *testSite) addHandler() bool {
	return s.post("POST", "/a/handler/add/x?lang=sh", `echo "$JOB_ID $1" >> `+s.runsPath()+"; echo R: 200 done\n")
}

type counts struct{ Waiting, Deferred, Running, OK, Failed, Abandoned int64 }

func (s *testSite) state() (c counts, ok bool) {
	resp, err := http.Get("http://" + s.addr + "/a/state")
	if err != nil {
		return c, false
	}
	defer resp.Body.Close()
	var answer struct{ Types map[string]counts }
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&answer) != nil {
		return c, false
	}
	return answer.Types["x"], true
}

// killPoints holds the failpoints at which a daemon is killed.
var killPoints = []string{
	"journal: before a segment", "journal: before write", "journal: written", "journal: synced",
	"ingest: before commit", "ingest: after commit",
	"take: before commit", "take: after commit",
	"end: before commit", "end: after commit",
	"reserve: before commit", "reserve: after commit",
	"put handler: before commit", "put handler: after commit",
}

// TestKills: at whatever failpoint the daemon is killed, accepted jobs run, are in the store once,
// and the counts are right. With -short, only some failpoints are tried on MariaDB.
func TestKills(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-kill-seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range *killWalks {
		for _, moment := range killPoints {
			passage := 1
			if strings.HasPrefix(moment, "journal: w") || strings.Contains(moment, "commit") && !strings.HasPrefix(moment, "reserve") && !strings.HasPrefix(moment, "put") {
				passage += r.IntN(4)
			}
			at := fmt.Sprintf("%s#%d", moment, passage)
			t.Run(at, func(t *testing.T) {
				t.Parallel()
				runUntilDeath(newTestSite(t), at)
			})
			if testing.Short() && r.IntN(4) > 0 {
				continue
			}
			t.Run(at+" MariaDB", func(t *testing.T) {
				t.Parallel()
				server := mariadbtest.Shared(t)
				runUntilDeath(newTestSite(t, fmt.Sprintf("--store=mysql://root@/%s?socket=%s", server.Database(t), url.QueryEscape(server.Socket()))), at)
			})
		}
	}
}

func runUntilDeath(s *testSite, at string) {
	t := s.t
	s.start(at)
	s.addHandler() // an error is fine: the request may have killed the daemon
	accepted, unsure := make(map[string]bool), make(map[string]bool)
	number := 0
	add := func() bool {
		number++
		a, b := fmt.Sprint(number, "a"), fmt.Sprint(number, "b")
		ok := s.post("POST", "/a/job/x/add", a+"\n"+b+"\n")
		for _, line := range []string{a, b} {
			if ok {
				accepted[line] = true
			} else {
				unsure[line] = true
			}
		}
		return ok
	}
	for number < 1000 && !s.hasDied() && add() { // pieces may be large, so it may take a while to pass the failpoint
	}
	s.waitUntil("the daemon dies", s.hasDied)
	s.start("-")
	if !s.addHandler() {
		t.Fatal("the handler is refused")
	}
	for range 3 {
		if !add() {
			t.Fatal("the daemon that came back does not accept jobs")
		}
	}
	var c counts
	s.waitUntil("all has run", func() bool {
		var ok bool
		c, ok = s.state()
		return ok && c.Waiting+c.Deferred+c.Running == 0 && c.OK >= int64(len(accepted))
	})
	text, err := os.ReadFile(s.runsPath())
	if err != nil {
		t.Fatal(err)
	}
	ids := make(map[string][]string) // by payload
	for _, line := range strings.Fields(strings.ReplaceAll(strings.TrimSpace(string(text)), " ", "/")) {
		id, payload, _ := strings.Cut(line, "/")
		if !slices.Contains(ids[payload], id) {
			ids[payload] = append(ids[payload], id)
		}
	}
	for payload := range accepted {
		if len(ids[payload]) != 1 {
			t.Errorf("%s was accepted, and ran as %d jobs", payload, len(ids[payload]))
		}
	}
	for payload, list := range ids {
		if len(list) != 1 || !accepted[payload] && !unsure[payload] {
			t.Errorf("%s ran as %v", payload, list)
		}
	}
	if c.OK != int64(len(ids)) || c.Failed+c.Abandoned != 0 {
		t.Errorf("%d jobs ran, the state says %+v", len(ids), c)
	}
}

// TestNoConcurrentRuns: the daemon and its guard are killed at the same time. Processes that a
// run has left, in its process group or outside, have ended before the job runs again.
func TestNoConcurrentRuns(t *testing.T) {
	for name, script := range map[string]string{"in its group": "sleep 1000", "out of its group": "setsid sleep 1000"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestSite(t)
			s.start("-")
			first := filepath.Join(s.dir, "first")
			if !s.post("POST", "/a/handler/add/x?lang=sh", fmt.Sprintf(`if [ -s %[1]s ]; then
	state=$(cut -d' ' -f3 /proc/$(cat %[1]s)/stat 2>/dev/null)
	echo "again beside ${state:-none}" >> %[2]s
	exit 0
fi
%[3]s & echo $! > %[1]s.new; mv %[1]s.new %[1]s; wait`, first, s.runsPath(), script)) {
				t.Fatal("the handler is refused")
			}
			if !s.post("POST", "/a/job/x", "1\n") {
				t.Fatal("the job is refused")
			}
			s.waitUntil("the first run has begun", func() bool {
				_, err := os.Stat(first)
				return err == nil
			})
			pid := s.daemons[0].PID()
			guard := 0
			s.waitUntil("the guard has its name", func() bool {
				guard = guardOf(pid)
				return guard != 0
			})
			_ = syscall.Kill(pid, syscall.SIGSTOP) // a stopped daemon cannot start another guard
			_ = syscall.Kill(guard, syscall.SIGKILL)
			_ = syscall.Kill(pid, syscall.SIGKILL)
			s.waitUntil("the daemon is dead", s.hasDied)
			s.start("-")
			var text []byte
			s.waitUntil("the job has run again", func() bool {
				text, _ = os.ReadFile(s.runsPath())
				return len(text) > 0
			})
			if got := string(text); got != "again beside none\n" && got != "again beside Z\n" {
				t.Errorf("%s", got)
			}
		})
	}
}

// TestStoppedDaemon: a daemon is stopped for longer than its locks and its runs last. Runs that have
// ended meanwhile count, because nobody has taken their jobs. No other job of their batches begins before
// the daemon has its locks again, so each job has one run.
func TestStoppedDaemon(t *testing.T) {
	const batches = 8 // that run at a time
	for _, test := range []struct {
		lang            string
		batch, contexts int
	}{{"sh", 1, 32}, {"sh", 1, 1}, {"sh", 4, 32}, {"http", 1, 32}, {"http", 4, 32}, {"gloom", 1, 32}, {"gloom", 4, 32}} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			atOnce := min(batches, test.contexts)
			s := newTestSite(t, "--contexts", fmt.Sprint(test.contexts), "--langs", "gloom,http,sh", "--lock-ttl", "5s", "--job-timeout", "4s", "--batch", fmt.Sprint(test.batch), "--concurrency", fmt.Sprint(batches))
			began, goOn := filepath.Join(s.dir, "began"), filepath.Join(s.dir, "go-on")
			source := fmt.Sprintf("echo >> %s; while ! [ -e %s ]; do sleep 0.05; done; echo $1 >> %s", began, goOn, s.runsPath())
			script := source
			runScript := func() {
				if out, err := exec.Command("sh", "-c", script, "sh", "1").CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			}
			switch test.lang {
			case "http":
				handler := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runScript() }))
				defer handler.Close()
				source = handler.URL
			case "gloom":
				opt := settings.Default()
				opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", ""
				broker, err := server.Start(opt, zerolog.Nop())
				if err != nil {
					t.Fatal(err)
				}
				defer broker.Close()
				w := &gloom.Worker{Type: "a-x", Concurrency: batches, Options: []gloom.Option{gloom.Addrs(broker.WorkerAddr().String())},
					Handler: func(context.Context, *gloom.Job) (any, error) { runScript(); return nil, nil }}
				go w.Run(t.Context())
				s.args = append(s.args, "--broker", broker.SubmitAddr().String())
				source = "-"
			}
			s.start("-")
			if !s.post("POST", "/a/handler/add/x?lang="+test.lang, source) {
				t.Fatal("the handler is refused")
			}
			jobs := batches * test.batch
			if !s.post("POST", "/a/job/x", strings.Repeat("1\n", jobs)) {
				t.Fatal("the jobs are refused")
			}
			lines := func(path string) int {
				text, _ := os.ReadFile(path)
				return strings.Count(string(text), "\n")
			}
			s.waitUntil("the jobs run", func() bool { return lines(began) == atOnce })
			pid := s.daemons[0].PID()
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			if err := os.WriteFile(goOn, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(7 * time.Second) // the runs end in the first second, and the locks expire within five
			if ended := lines(s.runsPath()); ended != atOnce {
				t.Fatalf("only %d of %d runs have ended in time", ended, batches)
			}
			_ = syscall.Kill(pid, syscall.SIGCONT)
			s.waitUntil("the jobs have ended", func() bool {
				c, ok := s.state()
				return ok && c.OK == int64(jobs)
			})
			if runs := lines(s.runsPath()); runs != jobs {
				t.Errorf("%d jobs ran %d times", jobs, runs)
			}
			s.daemons[0].Stop()
			events, err := os.ReadFile(filepath.Join(s.dataDir(), "events.log"))
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(events)) {
				if strings.Contains(line, `"event":"ended"`) && !strings.Contains(line, `"try":1,"code":"ok"`) {
					t.Error(line)
				}
			}
		})
	}
}

// TestCopiedDirectory: a daemon that starts in a copy of a running daemon's directory leaves the
// running daemon's processes and jobs alone.
func TestCopiedDirectory(t *testing.T) {
	s := newTestSite(t)
	s.args = []string{"--store", "sqlite:" + filepath.Join(s.dir, "shared.db")}
	s.start("-")
	began, goOn := filepath.Join(s.dir, "began"), filepath.Join(s.dir, "go-on")
	if !s.post("POST", "/a/handler/add/x?lang=sh", fmt.Sprintf("echo >> %s; while ! [ -e %s ]; do sleep 0.05; done; echo $1 >> %s", began, goOn, s.runsPath())) {
		t.Fatal("the handler is refused")
	}
	if !s.post("POST", "/a/job/x", "1\n") {
		t.Fatal("the job is refused")
	}
	s.waitUntil("the job runs", func() bool {
		_, err := os.Stat(began)
		return err == nil
	})
	from := s.dataDir()
	s.name = "copy"
	if err := os.CopyFS(s.dataDir(), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	s.start("-")
	time.Sleep(time.Second) // long enough for a second run to begin
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitUntil("the job has ended", func() bool {
		c, ok := s.state()
		return ok && c.OK == 1
	})
	runs, _ := os.ReadFile(s.runsPath())
	if starts, _ := os.ReadFile(began); string(starts) != "\n" || string(runs) != "1\n" {
		t.Errorf("the job was begun %d times, and ran to its end %d times", len(starts), len(runs)/2)
	}
}

// guardOf returns the process that kills a daemon's handlers when the daemon ends, or 0 if there is
// no such process.
func guardOf(daemon int) int {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		var pid, parent int
		var name, state string
		text, _ := os.ReadFile(path)
		if _, err := fmt.Sscan(string(text), &pid, &name, &state, &parent); err == nil && parent == daemon && name == "(job-guard)" && state != "Z" {
			return pid
		}
	}
	return 0
}

// ingest runs the ingest command on the journal that a daemon has left.
func (s *testSite) ingest(args ...string) (string, int) {
	var out, errs bytes.Buffer
	cmd := command()
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	code := cli.Execute(cmd, append([]string{"ingest", s.dataDir()}, args...), &errs)
	return out.String() + errs.String(), code
}

// TestIngestCommand: the ingest command writes to a store, once, the jobs that the daemon of a dead
// host had accepted. It refuses a store to which the journal does not belong.
func TestIngestCommand(t *testing.T) {
	s := newTestSite(t)
	s.start("ingest: before commit#1")
	if s.post("POST", "/a/job/x/add", "1\n2\n3\n") {
		t.Log("acknowledged before the end")
	}
	s.waitUntil("the daemon dies", s.hasDied)
	if text, code := s.ingest("--store", "sqlite:"+filepath.Join(s.dir, "other.db")); code == 0 || !strings.Contains(text, "3 jobs are left") {
		t.Fatalf("into a store that is not its own: %d %s", code, text)
	}
	for _, want := range []string{"3 jobs ingested", "0 jobs ingested"} {
		if text, code := s.ingest(); code != 0 || !strings.Contains(text, want) {
			t.Fatalf("%d %s", code, text)
		}
	}
	s.start("-")
	s.waitUntil("the jobs are there", func() bool {
		c, ok := s.state()
		return ok && c.Waiting == 3
	})
}

// TestMovedDirectory: when a directory with a journal and a store is moved, the journal's jobs
// still go to this store.
func TestMovedDirectory(t *testing.T) {
	for _, c := range []struct{ name, failpoint, want string }{
		{"stored", "-", "0 jobs ingested"},
		{"waiting", "ingest: before commit#1", "3 jobs ingested"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestSite(t)
			s.start(c.failpoint)
			s.post("POST", "/a/job/x/add?wait=store", "1\n2\n3\n")
			if c.failpoint == "-" {
				s.daemons[0].Kill()
			}
			s.waitUntil("the daemon ends", s.hasDied)
			from := s.dataDir()
			s.name = "moved"
			if err := os.Rename(from, s.dataDir()); err != nil {
				t.Fatal(err)
			}
			text, code := s.ingest()
			if !strings.Contains(text, c.want) || code != 0 {
				t.Fatalf("%d %s", code, text)
			}
			s.start("-")
			s.waitUntil("the jobs are there", func() bool {
				counts, ok := s.state() // jobs may be counted twice until the journal has asked the store
				return ok && counts.Waiting == 3
			})
		})
	}
}

// TestKillsBetweenDueTimes: daemons of one store are killed while they make the jobs of a schedule.
// The other daemons make the missing jobs, so that each due time has one job.
func TestKillsBetweenDueTimes(t *testing.T) {
	t.Parallel()
	server := mariadbtest.Shared(t)
	for name, shared := range map[string]string{
		"SQLite":  "sqlite:" + filepath.Join(t.TempDir(), "store.db"),
		"MariaDB": fmt.Sprintf("mysql://root@/%s?socket=%s", server.Database(t), url.QueryEscape(server.Socket())),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sites []*testSite
			for _, at := range []string{"-", "settle schedules: before commit#2", "settle schedules: after commit#1"} {
				s := newTestSite(t, "--store="+shared)
				s.start(at)
				sites = append(sites, s)
			}
			s := sites[0]
			if !s.post("PUT", "/a/schedule/tick", `{"cron":"@every 1s","job":{"type":"x"}}`) {
				t.Fatal("the schedule is refused")
			}
			var schedule struct {
				Created time.Time `json:"created_at"`
				Last    []struct {
					Due time.Time `json:"due_at"`
					Job string    `json:"job_id"`
				}
			}
			look := func(path string, to any) {
				resp, err := http.Get("http://" + s.addr + path)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				if err := json.NewDecoder(resp.Body).Decode(to); err != nil {
					t.Fatal(err)
				}
			}
			s.waitUntil("the others are dead, and due times go on", func() bool {
				n := len(schedule.Last)
				look("/a/schedule/tick", &schedule)
				return sites[1].hasDied() && sites[2].hasDied() && n > 0 && len(schedule.Last) > n
			})
			c, ok := s.state()
			n := int64(schedule.Last[0].Due.Sub(schedule.Created) / time.Second) // how many due times have passed
			if !ok || c.Waiting != n && c.Waiting != n+1 {
				t.Errorf("%d due times, the state says %+v", n, c)
			}
			for i, run := range schedule.Last {
				due := schedule.Last[0].Due.Add(-time.Duration(i) * time.Second)
				var job struct{ State string }
				look("/a/job/get/"+run.Job, &job)
				if !run.Due.Equal(due) || job.State != "waiting" {
					t.Errorf("of %v, due at %v, there is a job %q", due, run.Due, job.State)
				}
			}
		})
	}
}
