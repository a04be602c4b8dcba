package config

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseDialectOfFiles(t *testing.T) {
	tests := map[string]struct {
		text string
		want string // lines key=value, one section after the other
	}{
		"plain":                       {"a = 1\nb=2", "a=1 b=2"},
		"carriage returns":            {"a = 1\r\n\r\nb=2\r", "a=1 b=2"},
		"byte order mark":             {"\ufeffa = 1", "a=1"},
		"indented":                    {"  a  =  1  ", "a=1"},
		"no sign of equality":         {"alone", "alone=true"},
		"no value":                    {"a =", "a="},
		"no key":                      {"= 5\na=1", "a=1"},
		"equality in the value":       {"a = b = c", "a=b = c"},
		"last one wins, first place":  {"a=1\nb=2\na=3", "a=3 b=2"},
		"comments":                    {"; a=1\n  # b=2\nc=3", "c=3"},
		"comment after a value":       {"a = 1 ; one\nb = 2#two", "a=1 b=2"},
		"comment in a key":            {"a;b = 1", "a=1"},
		"escaped comment":             {`a = x\;y\#z ; note`, "a=x;y#z"},
		"escaped backslash":           {`a = x\\;y`, `a=x\`},
		"other backslashes stay":      {`a = C:\dir\n`, `a=C:\dir\n`},
		"backslash at the end":        {"a = x\\\nb = y", `a=x\ b=y`},
		"percent signs stay":          {"a = %(b)s\nb = y", "a=%(b)s b=y"},
		"colons are no separators":    {"a:b = c", "a:b=c"},
		"double quotes":               {`a = "x;y # z"`, "a=x;y # z"},
		"double quotes hold JSON":     {`a = "tab\tquote\" \u00e9"`, "a=tab\tquote\" é"},
		"double quotes, not JSON":     {`a = "C:\dir"`, `a="C:\dir"`},
		"double quotes keep spaces":   {`a = "  x "`, "a=  x "},
		"single quotes":               {`a = 'x;y'`, "a=x;y"},
		"single around double quotes": {`a = '"x"'`, "a=x"},
		"comment after quotes":        {`a = "x" ; note`, `a="x"`},
		"comment after single quotes": {`a = 'x' ; note`, "a='x'"},
		"comment sign in such quotes": {`a = "x;y" ; note`, `a="x`},
		"comment with quotes":         {`a = "x;y" ; "note"`, `a="x;y" ; "note"`},
		"two strings":                 {`a = "x" and "y;z"`, `a="x" and "y;z"`},
		"quotes inside":               {`a = x "y;z"`, `a=x "y`},
		"lone quote":                  {`a = "`, `a="`},
		"lone single quote":           {`a = '`, "a="},
		"open quote":                  {`a = "x ; y`, `a="x`},
		"quoted key":                  {`"a;b" = 1`, "a;b=1"},
		"dotted keys":                 {"a.b.c = 1", "a.b.c=1"},
		"section":                     {"a=1\n[s]\nb=2", "a=1 [s] b=2"},
		"section with a comment":      {"[s] ; note\nb=2", "[s] b=2"},
		"section twice":               {"[s]\na=1\n[t]\n[s]\nb=2", "[s] a=1 b=2 [t]"},
		"open section":                {"[s\na=1", "[s=true a=1"},
		"not only a section":          {"[s] x\na=1", "[s] x=true a=1"},
		"prototype names":             {"[s]\ntoString=1\n__proto__=2", "[s] toString=1 __proto__=2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range parseDocument(tc.text).sections {
				if s.name != "" {
					got = append(got, "["+s.name+"]")
				}
				for _, e := range s.entries {
					got = append(got, e.key+"="+e.value)
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const minimalFile = `host = 127.0.0.1
port = 7080
mysql_host = db
mysql_port = 3307
mysql_user = u
mysql_password = p
mysql_database = d
mysql_table = t
launcher = run {id}
[targets]
`

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWorkerDefaultsApply(t *testing.T) {
	got, err := LoadWorker(writeConfig(t, minimalFile))
	if err != nil {
		t.Fatal(err)
	}
	want := &Worker{
		Server:                 Server{Host: "127.0.0.1", Port: 7080, MaxConnections: 1024, MaxMessage: 16 << 20, MaxUnfinished: 256 << 20},
		MasterReconnectTimeout: 10 * time.Second,
		Log:                    Log{LevelFile: "warn", LevelConsole: "warn", Format: "console"},
		MySQL: MySQL{Host: "db", Port: 3307, User: "u", Password: "p", Database: "d", Table: "t",
			TLS: "false", FetchLimit: 100},
		Launcher:        "run {id}",
		MaxOutputBuffer: -1,
		Orphans:         "fail",
		Lease:           10 * time.Second,
		ShutdownTimeout: 30 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWorkerValuesAreRead(t *testing.T) {
	top := `
name = w1
password = null
always_allow_localhost = 1
master_host = m
master_port = 7081.9
master_reconnect_timeout = 0.25
mysql_fetch_limit = 0
mysql_password =
launcher.env.B = two;
launcher.env.A = one=1
unheard_of = 1
poll_intervall = 5
`
	got, err := LoadWorker(writeConfig(t, strings.Replace(minimalFile, "[targets]", top+"[targets]\n2 = 1\n1=2.9\ntoString = 3\n__proto__ = 1 ; note\na.b = 07\n", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Name != "w1" || got.Server.Password != "" || !got.Server.AlwaysAllowLocalhost {
		t.Errorf("name, password, always_allow_localhost: %q %+v", got.Name, got.Server)
	}
	if got.MasterHost != "m" || got.MasterPort != 7081 || got.MasterReconnectTimeout != 250*time.Millisecond {
		t.Errorf("master: %s %d %s", got.MasterHost, got.MasterPort, got.MasterReconnectTimeout)
	}
	if got.MySQL.FetchLimit != 0 || got.MySQL.Password != "" {
		t.Errorf("mysql: %+v", got.MySQL)
	}
	if diff := cmp.Diff([]string{"B=two", "A=one=1"}, got.LauncherEnv); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Target{{"2", 1}, {"1", 2}, {"toString", 3}, {"__proto__", 1}, {"a.b", 7}}, got.Targets); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"unknown key 'unheard_of' is ignored", "unknown key 'poll_intervall' is ignored; did you mean 'poll_interval'?"}, withoutPlaces(got.Warnings)); diff != "" {
		t.Error(diff)
	}
}

func TestWorkerErrorsAreReported(t *testing.T) {
	// Each case changes one line of the minimal file, or no line if old is "".
	tests := []struct{ old, new, want string }{
		{"host = 127.0.0.1\n", "", "'host' is not defined"},
		{"host = 127.0.0.1\n", "host =\n", "'host' is not defined"},
		{"host = 127.0.0.1\n", "host = null\n", "'host' is not defined"},
		{"port = 7080\n", "", "'port' is not defined"},
		{"port = 7080\n", "port = seven\n", "'port' must be an integer"},
		{"port = 7080\n", "port = 7080x\n", "'port' must be an integer"},
		{"port = 7080\n", "port = 70800\n", "'port' must be between 0 and 65535, got 70800"},
		{"port = 7080\n", "port = 99999999999999999999\n", "'port' must be between 0 and 65535, got 99999999999999999999"},
		{"port = 7080\n", "port = 7080\nmaster_port =\n", "'master_port' must be an integer"},
		{"port = 7080\n", "port = 7080\nmaster_reconnect_timeout = soon\n", "'master_reconnect_timeout' must be an integer"},
		{"port = 7080\n", "port = 7080\nlog_level_console = loud\n", "'log_level_console': level 'loud' is not allowed, use one of [trace debug info warn error]"},
		{"port = 7080\n", "port = 7080\nlog_file = x\nlog_level_file = loud\n", "'log_level_file': level 'loud' is not allowed, use one of [trace debug info warn error]"},
		{"mysql_host = db\n", "", "'mysql_host' is not defined"},
		{"mysql_port = 3307\n", "", "'mysql_port' is not defined"},
		{"mysql_port = 3307\n", "mysql_port = x\n", "'mysql_port' must be an integer"},
		{"mysql_user = u\n", "", "'mysql_user' is not defined"},
		{"mysql_password = p\n", "", "'mysql_password' is not defined"},
		{"mysql_database = d\n", "", "'mysql_database' is not defined"},
		{"mysql_table = t\n", "", "'mysql_table' is not defined"},
		{"mysql_table = t\n", "mysql_table = t\nmysql_fetch_limit = -1\n", "'mysql_fetch_limit' must be between 0 and 2147483647, got -1"},
		{"mysql_table = t\n", "mysql_table = t\nmysql_tls = maybe\n", "'mysql_tls' must be one of: preferred, skip-verify, true, got 'maybe'"},
		{"launcher = run {id}\n", "", "'launcher' is not defined"},
		{"launcher = run {id}\n", "launcher = x\nmax_output_buffer = big\n", "'max_output_buffer' must be an integer"},
		{"launcher = run {id}\n", "launcher = x\norphans = adopt\n", "'orphans' must be one of: fail, requeue, got 'adopt'"},
		{"launcher = run {id}\n", "launcher = x\nlease = 1\n", "'lease' must be between 2 and 1e+09 seconds, got 1"},
		{"launcher = run {id}\n", "launcher = x\nbroker_tls_key = k\n", "'broker_tls_cert' and 'broker_tls_key' belong together"},
		{"[targets]\n", "", "'targets' is not defined"},
		{"[targets]\n", "targets = a\n", "'targets' must be an object"},
		{"[targets]\n", "[targets]\nany = many\n", "value of target 'any' must be a number"},
		{"[targets]\n", "[targets]\nany\n", "value of target 'any' must be a number"},
		{"[targets]\n", "[targets]\nany =\n", "value of target 'any' must be a number"},
		{"[targets]\n", "[targets]\nany = 0\n", "target 'any' has invalid value"},
		{"[targets]\n", "[targets]\nany = 0.9\n", "target 'any' has invalid value"},
		{"[targets]\n", "[targets]\nany = -3\n", "target 'any' has invalid value"},
		{"[targets]\n", "[targets]\nnull = 1\n", "word 'null' is reserved, please don't use it as a target name"},
		{"[targets]\n", "[targets]\ncaf\xe9 = 1\n", "target 'caf\xe9' cannot have jobs: type must be UTF-8, not /d.t/caf\ufffd"},
	}
	for _, tc := range tests {
		if !strings.Contains(minimalFile, tc.old) {
			t.Fatalf("%q is not in the minimal file", tc.old)
		}
		_, err := LoadWorker(writeConfig(t, strings.Replace(minimalFile, tc.old, tc.new, 1)))
		if err == nil || err.Error() != tc.want {
			t.Errorf("%q: got error %v, want %s", tc.new, err, tc.want)
		}
	}
	for name, load := range map[string]func(string) error{
		"worker": func(p string) error { _, err := LoadWorker(p); return err },
		"master": func(p string) error { _, err := LoadMaster(p); return err },
		"jobctl": func(p string) error { _, err := LoadJobctl(p); return err },
	} {
		if err := load("/no/such.conf"); err == nil || err.Error() != "file /no/such.conf not found" {
			t.Errorf("%s: got error %v for a file that is not there", name, err)
		}
		if err := load(t.TempDir()); err == nil {
			t.Errorf("%s: no error for a directory", name)
		}
	}
}

func TestNoLauncherNeedsBroker(t *testing.T) {
	text := strings.Replace(minimalFile, "launcher = run {id}\n", "broker_submit_addr = b:8000\nbroker_worker_addr = b:8001\n", 1)
	w, err := LoadWorker(writeConfig(t, text))
	if err != nil {
		t.Fatal(err)
	}
	if w.Launcher != "" || w.Broker.SubmitAddr != "b:8000" || w.Broker.WorkerAddr != "b:8001" {
		t.Errorf("got launcher %q, broker %+v", w.Launcher, w.Broker)
	}
}

func TestMasterDefaultsApply(t *testing.T) {
	got, err := LoadMaster(writeConfig(t, "host = ::\nport = 0\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := &Master{
		Server:               Server{Host: "::", MaxConnections: 1024, MaxMessage: 16 << 20, MaxUnfinished: 256 << 20},
		Log:                  Log{LevelFile: "warn", LevelConsole: "warn", Format: "console"},
		PingInterval:         30 * time.Second,
		PokeThrottleInterval: 500 * time.Millisecond,
		WorkerTimeout:        5 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		"port = 1":                                          "'host' is not defined",
		"host = h":                                          "'port' is not defined",
		"host = h\nport = p":                                "'port' must be an integer",
		"host = h\nport = 1\nping_interval = x":             "'ping_interval' must be an integer",
		"host = h\nport = 1\nping_interval = 0":             "'ping_interval' must be between 0.1 and 1e+09 seconds, got 0",
		"host = h\nport = 1\npoke_throttle_interval = x":    "'poke_throttle_interval' must be a float",
		"host = h\nport = 1\npoke_throttle_interval = 1e99": "'poke_throttle_interval' must be between 0 and 1e+09 seconds, got 1e99",
	} {
		if _, err := LoadMaster(writeConfig(t, text)); err == nil || err.Error() != want {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
}

func TestExamplesShowDefaults(t *testing.T) {
	w, err := LoadWorker("examples/jobd.conf")
	if err != nil {
		t.Fatal(err)
	}
	if w.MySQL.Password != "pass;word" || w.MySQL.FetchLimit != 100 || w.MaxOutputBuffer != -1 || len(w.Targets) != 4 ||
		w.Targets[0] != (Target{"1/high", 10}) || w.LauncherCwd != "/srv/app" || len(w.LauncherEnv) != 2 || w.Warnings != nil {
		t.Errorf("jobd.conf reads as %+v", w)
	}
	// The comments must name the real defaults.
	text, err := os.ReadFile("examples/jobd.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{";orphans = fail ", ";lease = 10 ", ";shutdown_timeout = 30 ", ";master_reconnect_timeout = 10 "} {
		if !strings.Contains(string(text), line) {
			t.Errorf("jobd.conf does not show %q", line)
		}
	}
	if b, err := LoadWorker("examples/jobd-bridge.conf"); err != nil || b.Launcher != "" || b.Broker.TypePrefix != "app/" || b.Warnings != nil {
		t.Errorf("jobd-bridge.conf reads as %+v, error %v", b, err)
	}
	if m, err := LoadMaster("examples/jobd-master.conf"); err != nil || m.Server.Password != "secret" || !m.Server.AlwaysAllowLocalhost || m.Warnings != nil {
		t.Errorf("jobd-master.conf reads as %+v, error %v", m, err)
	}
	c, err := LoadJobctl("examples/jobctl.conf")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&Jobctl{Master: true, Host: "10.0.0.1", Port: 7081, Password: "secret", LogLevel: "warn"}, c); diff != "" {
		t.Error(diff)
	}
}

func TestJobctlDefaultsApply(t *testing.T) {
	got, err := LoadJobctl(writeConfig(t, "; nothing\n"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultJobctl(), got); diff != "" {
		t.Error(diff)
	}
	if _, err := LoadJobctl(writeConfig(t, "port = x")); err == nil || err.Error() != "'port' must be an integer" {
		t.Errorf("got error %v", err)
	}
	if _, err := LoadJobctl(writeConfig(t, "log_level = x")); err == nil {
		t.Error("no error for a level that is none")
	}
}

// FuzzQuoted: any text written as a JSON string reads back as itself, as key or value.
func FuzzQuoted(f *testing.F) {
	f.Add("k;=", "v # w")
	f.Add("'", "\\\\;")
	f.Fuzz(func(t *testing.T, key, value string) {
		key, value = strings.ToValidUTF8(key, ""), strings.ToValidUTF8(value, "")
		k, _ := json.Marshal(strings.ReplaceAll(key, "=", "-")) // the first = always ends the key
		v, _ := json.Marshal(value)
		doc := parseDocument("a = b\n" + string(k) + " = " + string(v) + "\nd = e\n")
		want := []entry{{"a", "b"}, {strings.ReplaceAll(key, "=", "-"), value}, {"d", "e"}}
		if key == "a" || key == "d" {
			t.Skip()
		}
		if got := doc.unnamedSection().entries; !slices.Equal(want, got) {
			t.Errorf("%s = %s reads as %q", k, v, got)
		}
	})
}

// withoutPlaces removes the places, that is files and line numbers, from warnings.
func withoutPlaces(warnings []string) (list []string) {
	for _, w := range warnings {
		_, text, _ := strings.Cut(w, ": ")
		list = append(list, text)
	}
	return list
}

// TestAllFaultsAreReported: all errors are reported, with their places.
func TestAllFaultsAreReported(t *testing.T) {
	path := writeConfig(t, "host = x\r\n\n; note\nport = many\rorphans = no\n[targets]\na = 0\nb = x\n")
	_, err := LoadWorker(path)
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(strings.Join(faults.All(), "\n"), path, "f")
	want := "f:4: 'port' must be an integer\nf: 'mysql_host' is not defined\nf: 'mysql_port' is not defined\nf: 'mysql_user' is not defined\n" +
		"f: 'mysql_password' is not defined\nf: 'mysql_database' is not defined\nf: 'mysql_table' is not defined\nf: 'launcher' is not defined\n" +
		"f:7: target 'a' has invalid value\nf:8: value of target 'b' must be a number\nf:5: 'orphans' must be one of: fail, requeue, got 'no'"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	c, err := LoadJobctl(writeConfig(t, "hots = h\n"))
	if err != nil || len(c.Warnings) != 1 || !strings.HasSuffix(c.Warnings[0], ":1: unknown key 'hots' is ignored; did you mean 'host'?") {
		t.Errorf("%v %v", c, err)
	}
}
