package runner

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gloom/cmd/serverlessd/job"
)

// TestClientIsolation: even with the same handler, version and eid, a client leaves nothing behind
// for another client: no global, environment variable, file, or line that makes a job.
func TestClientIsolation(t *testing.T) {
	bodies := map[string][2]string{
		job.Node: {
			`globalThis.left = 1; process.env.LEFT = 1; require("fs").writeFileSync("left", "x"); require("fs").writeFileSync(process.env.TMPDIR + "/left2", "x"); process.stdout.write("J: u|unfin")`,
			`const fs = require("fs"); return [typeof left, process.env.LEFT, fs.readdirSync("."), fs.readdirSync(process.env.TMPDIR)].join()`,
		},
		job.Python: {
			"global left\nimport os\nleft = 1\nos.environ['LEFT'] = '1'\nopen('left', 'w')\nopen(os.environ['TMPDIR'] + '/left2', 'w')\nprint('J: u|unfin', end='')",
			"import os; return repr(['left' in globals(), os.environ.get('LEFT'), os.listdir('.'), os.listdir(os.environ['TMPDIR'])])",
		},
		job.PHP: {
			`$GLOBALS["left"] = 1; putenv("LEFT=1"); touch("left"); touch(sys_get_temp_dir() . "/left2"); echo "J: u|unfin";`,
			`return json_encode([isset($GLOBALS["left"]), getenv("LEFT"), glob("*"), glob(sys_get_temp_dir() . "/*")]);`,
		},
		job.Shell: {`touch left "$TMPDIR/left2"; export LEFT=1; printf 'J: u|unfin'`, `echo "R: 200 $LEFT$(echo $(ls) $(ls $TMPDIR))"`},
	}
	expected := map[string]string{
		job.Node: "200 undefined,,,", job.Python: "200 [False, None, [], []]", job.PHP: "200 [false,false,[],[]]", job.Shell: "200",
	}
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, nil)
		leavingSource, lookingSource := job.Source{Lang: l.lang, EID: "e", Body: bodies[l.lang][0]}, job.Source{Lang: l.lang, EID: "e", Body: bodies[l.lang][1]}
		h := handler(leavingSource)
		lookingHandler := handler(lookingSource)
		leavingBatch, otherBatch := batch(h, "x"), batch(lookingHandler, "x")
		otherBatch.Client = "other"
		ownBatch := batch(lookingHandler, "x")
		if got := text(run(t, r, leavingBatch)[0]); got != "200 [u|unfin]" {
			t.Fatalf("%q", got)
		}
		if got := strings.TrimRight(text(run(t, r, otherBatch)[0]), " "); got != expected[l.lang] {
			t.Errorf("another client sees %q, want %q", got, expected[l.lang])
		}
		if got := text(run(t, r, ownBatch)[0]); !strings.Contains(got, "left2") {
			t.Errorf("the same client does not see what it left: %q", got)
		}
		if r.Processes() != 2 {
			t.Errorf("%d contexts", r.Processes())
		}
	})
}

// TestSecretsOfTheDaemon: a handler process has none of the daemon's environment variables and file
// descriptors.
func TestSecretsOfTheDaemon(t *testing.T) {
	t.Setenv("SECRET_OF_THE_DAEMON", "1")
	secret, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer secret.Close()
	inherited, err := syscall.Dup(int(secret.Fd())) // a descriptor that is not closed on exec, like one that the daemon has inherited
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	r := newRunner(t, nil)
	for _, l := range testLanguages {
		body := map[string]string{
			job.Node:   `return require("child_process").execSync("env; ls -l /proc/self/fd /proc/$PPID/fd").toString()`,
			job.Python: `import subprocess; return subprocess.run("env; ls -l /proc/self/fd /proc/$PPID/fd", shell=True, stdout=subprocess.PIPE).stdout`,
			job.PHP:    `return shell_exec("env; ls -l /proc/self/fd /proc/\$PPID/fd");`,
			job.Shell:  `echo "R: 200 $(env; ls -l /proc/self/fd /proc/$$/fd)"`,
		}[l.lang]
		got := text(runOne(t, r, handler(job.Source{Lang: l.lang, Body: strings.ReplaceAll(body, `\$`, `$`)}), "x"))
		if !strings.Contains(got, "TMPDIR=") && l.lang != job.Shell || strings.Contains(got, "SECRET") || strings.Contains(got, "/dev/zero") {
			t.Errorf("%s sees\n%s", l.lang, got)
		}
	}
}

func TestProcessesRunAsUser(t *testing.T) {
	if _, err := New(Options{Dir: t.TempDir(), User: "no-such-user-here"}); err == nil || !strings.Contains(err.Error(), "no-such-user-here") {
		t.Errorf("unknown user: %v", err)
	}
	if os.Getuid() != 0 {
		if _, err := New(Options{Dir: t.TempDir(), User: "0"}); err == nil {
			t.Error("New accepted user 0, although this process is not root")
		}
		return
	}
	dir, err := os.MkdirTemp("", "runner-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	r := newRunner(t, func(o *Options) { o.Dir, o.User = dir, "nobody" })
	for lang, body := range map[string]string{
		job.Node:   `require("fs").writeFileSync("f", "x"); return String(process.getuid()) + payload`,
		job.Python: "import os; open('f', 'w'); return str(os.getuid()) + payload",
		job.PHP:    `touch("f"); return posix_getuid() . $payload;`,
		job.Shell:  `touch f && echo "R: 200 $(id -u)$(cat)"`,
	} {
		if got := text(runOne(t, r, handler(job.Source{Lang: lang, Body: body}), "x")); got != "200 65534x" {
			t.Errorf("%s: %q", lang, got)
		}
	}
}

// TestOnlyMarkedLeftoversAreRemoved: only the folder of a killed daemon is removed. A folder with
// such a name but without the mark belongs to somebody else.
func TestOnlyMarkedLeftoversAreRemoved(t *testing.T) {
	dir := t.TempDir()
	ownFolder, err := makeFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"contexts/7", "journal/1", folderPrefix + "of-mine/7", filepath.Base(ownFolder) + "/7/a/b"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := newRunner(t, func(o *Options) { o.Dir = dir })
	if _, err := os.Stat(ownFolder); !os.IsNotExist(err) {
		t.Errorf("a killed daemon's folder is there: %v", err)
	}
	for _, path := range []string{"contexts/7", "journal/1", folderPrefix + "of-mine/7", filepath.Base(r.options.Dir) + "/" + markFile} {
		if _, err := os.Stat(filepath.Join(dir, path)); err != nil {
			t.Error(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, folderPrefix+"of-mine")); err != nil {
		t.Fatal(err)
	}
}
