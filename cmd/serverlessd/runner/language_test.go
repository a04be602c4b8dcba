package runner

import (
	"strings"
	"testing"

	"gloom/cmd/serverlessd/job"
)

// testLanguage holds handlers in one language. Those with the same name do the same in all
// languages.
type testLanguage struct {
	lang string
	// returns holds the outcome of each body for the payload "p|x"; … stands for the interpreter's
	// message.
	returns         map[string]string
	echo            string // returns the payload
	print           string // prints the payload, and a newline
	global          string // a before that sets the global n to 1
	incrementGlobal string // adds 1 to the global n, and returns it
	raw             string // returns the hexadecimal bytes of the raw payload
	failBody        string // says "broken" and fails
	exitBody        string // ends the handler process
	hangBody        string
	spinBody        string
}

var testLanguages = []testLanguage{
	{
		lang: job.Node,
		returns: map[string]string{
			``:                                  "200",
			`return`:                            "200",
			`return null`:                       "200",
			`return 204`:                        "204",
			`return 404`:                        "404",
			`return 12.5`:                       "500 status 12.5 counts as 500",
			`return NaN`:                        "500 status NaN counts as 500",
			`return 1e30`:                       "500 status 1e+30 counts as 500",
			`return {status: "200"}`:            "500 status '200' counts as 500",
			`return {status: .5, data: "half"}`: "500 half",
			`return -1`:                         "-1",
			`return "text"`:                     "200 text",
			`return Buffer.from([0, 10, 65])`:   "200 \x00\nA",
			`return {status: 418, data: "tea"}`: "418 tea",
			`return {data: {a: [1, "ü"]}}`:      `200 {"a":[1,"ü"]}`,
			`return {status: 299}`:              "299",
			`return true`:                       "500 the handler must return nothing, a number, a string or {status, data}",
			`throw new Error("no way")`:         "500 no way",
			`throw "plain"`:                     "500 plain",
			`await null; return job.type + job.tries`:                             "200 t1",
			`return job.id + payload`:                                             "200 id-0p|x",
			`return String(Buffer.isBuffer(job.raw))`:                             "200 true",
			`setTimeout(() => {}, 1e6); return 201`:                               "201",
			`return (`:                                                            "500 …",
			`console.log("R: 202 by line"); return 1`:                             "202 by line",
			`console.log("R: 202"); throw "x"`:                                    "202",
			`console.log("R: 404\nR: 405 last\nR: x")`:                            "405 last",
			`"use strict"; return typeof secret + typeof sources + typeof chunks`: "200 undefinedundefinedundefined",
			`console.log("J: u|1\n#J: v|a|b\nJ: bad type|\nJ: u")`:                "200 [u|1] [v|a|b] bad=2",
			`process.stdout.write("J: u|unfinished")`:                             "200 [u|unfinished]",
			`process.stdout.write = null; return 200`:                             "200",
		},
		echo: `return payload`, print: `console.log(payload)`, global: `n = 1`, incrementGlobal: `n++; return String(n)`,
		raw: `return job.raw.toString("hex")`, failBody: `console.log("said"); throw new Error("broken")`, exitBody: `console.error("last words"); process.exit(3)`,
		hangBody: `await new Promise(() => {})`, spinBody: `for (;;);`,
	},
	{
		lang: job.Python,
		returns: map[string]string{
			`pass`:                                   "200",
			`# nothing`:                              "200",
			`return`:                                 "200",
			`return 204`:                             "204",
			`return 404.0`:                           "404",
			`return 12.5`:                            "500 status 12.5 counts as 500",
			`return 10**16`:                          "500 status 10000000000000000 counts as 500",
			`return float("nan")`:                    "500 status nan counts as 500",
			`return {"status": "200"}`:               "500 status '200' counts as 500",
			`return {"status": .5, "data": "half"}`:  "500 half",
			`return -1`:                              "-1",
			`return "täxt"`:                          "200 täxt",
			`return b"\x00\nA"`:                      "200 \x00\nA",
			`return {"status": 418, "data": "tea"}`:  "418 tea",
			`return {"data": {"a": [1, "u"]}}`:       `200 {"a": [1, "u"]}`,
			`return {"status": 299}`:                 "299",
			`return True`:                            "500 the handler must return nothing, a number, a string or a dict with status and data",
			`raise ValueError("no way")`:             "500 no way",
			`raise KeyError()`:                       "500 KeyError",
			`import sys; sys.exit("leaving")`:        "500 leaving",
			`return job["type"] + str(job["tries"])`: "200 t1",
			`return job["id"] + payload`:             "200 id-0p|x",
			`return str(type(job["raw"]).__name__)`:  "200 bytes",
			`return (`:                               "500 …",
			"if payload:\n  x = \"\"\"a\nb\"\"\"\n  return x":                             "200 a\nb",
			`print("R: 202 by line"); return 1`:                                           "202 by line",
			`print("R: 202"); raise ValueError`:                                           "202",
			`print("R: 404\nR: 405 last\nR: x")`:                                          "405 last",
			`return repr([n for n in ("secret", "sources", "module") if n in globals()])`: "200 []",
			`print("J: u|1\n#J: v|a|b\nJ: bad type|\nJ: u")`:                              "200 [u|1] [v|a|b] bad=2",
			`print("J: u|unfinished", end="")`:                                            "200 [u|unfinished]",
			`import sys; sys.stdout.close()`:                                              "200",
			`import os; os.fork(); return 200`:                                            "200",
		},
		echo: `return payload`, print: `print(payload)`, global: `n = 1`, incrementGlobal: "global n\nn += 1\nreturn str(n)",
		raw: `return job["raw"].hex()`, failBody: `print("said"); raise Exception("broken")`, exitBody: `import os, sys; print("last words", file=sys.stderr, flush=True); os._exit(3)`,
		hangBody: `import time; time.sleep(1e6)`, spinBody: "while True: pass",
	},
	{
		lang: job.PHP,
		returns: map[string]string{
			`// nothing`:                "200",
			`return;`:                   "200",
			`return 204;`:               "204",
			`return 12.5;`:              "500 status 12.5 counts as 500",
			`return NAN;`:               "500 status NAN counts as 500",
			`return -1;`:                "-1",
			`return ["status" => "x"];`: "500 status 'x' counts as 500",
			`return ["status" => .5, "data" => "half"];`: "500 half",
			`return "text";`:  "200 text",
			`return "\0\nA";`: "200 \x00\nA",
			`return ["status" => 418, "data" => "tea"];`:                  "418 tea",
			`return ["data" => ["a" => [1, "u"]]];`:                       `200 {"a":[1,"u"]}`,
			`return ["status" => 299];`:                                   "299",
			`return true;`:                                                "500 the handler must return nothing, a number, a string or an array with status and data",
			`throw new Exception("no way");`:                              "500 no way",
			`return nosuch();`:                                            "500 Call to undefined function nosuch()",
			`return $job["type"] . $job["tries"];`:                        "200 t1",
			`return $job["id"] . $payload;`:                               "200 id-0p|x",
			"<?php\nreturn 203;":                                          "203",
			`return (`:                                                    "500 …",
			`echo "R: 202 by line\n"; return 1;`:                          "202 by line",
			`echo "R: 404\nR: 405 last\nR: x\n";`:                         "405 last",
			`ob_start(); echo "J: u|1\n#J: v|a|b\nJ: bad type|\nJ: u\n";`: "200 [u|1] [v|a|b] bad=2",
			`echo "J: u|unfinished";`:                                     "200 [u|unfinished]",
			`return implode(" ", array_diff(array_keys(get_defined_vars()), ["payload", "job"]));`: "200",
			`return isset($this) || class_exists("self") ? 500 : 200;`:                             "200",
			`try { return self::$secret; } catch (Error $e) { return 201; }`:                       "201",
		},
		echo: `return $payload;`, print: `echo $payload, "\n";`, global: `$n = 1;`, incrementGlobal: `$GLOBALS["n"]++; return (string) $GLOBALS["n"];`,
		raw: `return bin2hex($job["raw"]);`, failBody: `echo "said\n"; throw new Exception("broken");`, exitBody: `fwrite(STDERR, "last words"); exit(3);`,
		hangBody: `sleep(1000000);`, spinBody: `for (;;);`,
	},
	{
		lang: job.Shell,
		returns: map[string]string{
			`true`:                               "200",
			`exit 75`:                            "100 exit status 75",
			`exit 65`:                            "400 exit status 65",
			`exit 3`:                             "500 exit status 3",
			`return 65`:                          "400 exit status 65",
			`kill -9 $(exec sh -c 'echo $PPID')`: "500 exit status 137",
			`if`:                                 "500 exit status 2",
			`set -e; false; echo R: 404`:         "500 exit status 1",
			`echo "R: 404"; exit 3`:              "404",
			`echo "R: 202 $1"`:                   "202 p|x",
			`read -r a; read -r b; echo "R: 202 $a.$b$?"`:           "202 p|x.1",
			`printf 'R: 202 '; wc -c | tr -d ' '`:                   "202 4",
			`echo "R: 202 $JOB_ID $JOB_TYPE $JOB_TRY"`:              "202 id-0 t 1",
			`printf 'J: u|1\n#J: v|a|b\nJ: bad type|\nJ: u\n'`:      "200 [u|1] [v|a|b] bad=2",
			`printf 'J: u|unfinished'`:                              "200 [u|unfinished]",
			`echo "R: 200 $(ls /proc/self/fd | wc -l | tr -d ' ')"`: "200 4", // descriptors 0, 1 and 2, and that of the directory listing
		},
		echo: `echo "R: 200 $1"`, print: `echo "$1"`, global: `n=1`, incrementGlobal: "",
		raw: `echo "R: 200 $(head -c -1 | od -An -v -tx1 | tr -d ' \n')"`, failBody: `echo said; exit 1`, exitBody: `echo "last words" >&2; kill -9 $$`,
		hangBody: `sleep 1000000`, spinBody: `while :; do :; done`,
	},
}

// inEachLanguage runs a test in each language.
func inEachLanguage(t *testing.T, f func(t *testing.T, l testLanguage)) {
	for _, l := range testLanguages {
		t.Run(l.lang, func(t *testing.T) {
			t.Parallel()
			f(t, l)
		})
	}
}

func TestReturnValuesOfLanguages(t *testing.T) {
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, nil)
		for body, want := range l.returns {
			eid := "all"
			if strings.Contains(body, "stdout") { // such a body may break its handler process, so it gets one of its own
				eid = body
			}
			got := text(runOne(t, r, handler(job.Source{Lang: l.lang, Body: body, EID: eid}), "p|x"))
			if !sameOutcome(got, want) {
				t.Errorf("%s\ngave %q, want %q", body, got, want)
			}
		}
		if l.lang == job.Shell && r.Processes() != 1 {
			t.Errorf("%d contexts have one eid", r.Processes())
		}
	})
}

// TestPayloadsReachHandlerUnchanged: all bytes that a line may have reach the handler unchanged.
func TestPayloadsReachHandlerUnchanged(t *testing.T) {
	payload := make([]byte, 0, 255)
	for c := range 256 {
		if c != '\n' {
			payload = append(payload, byte(c))
		}
	}
	inEachLanguage(t, func(t *testing.T, l testLanguage) {
		r := newRunner(t, nil)
		for _, payload := range []string{"", "a", "'\"\\$`|", string(payload), "\xff\xfe", strings.Repeat("0123456789", 100<<10)} {
			for name, body := range map[string]string{"raw": l.raw, "payload": l.echo} {
				want := payload
				if name == "raw" {
					want = hexOf(payload)
				} else if l.lang == job.Shell {
					if want, _, _ = strings.Cut(payload, "\x00"); len(payload) > maxArgument {
						want = ""
					}
				} else {
					want = normalized(payload)
				}
				o := runOne(t, r, handler(job.Source{Lang: l.lang, Body: body, EID: "all"}), payload)
				if got := collapsed(string(o.Data)); o.Status != 200 || got != collapsed(want) {
					t.Errorf("%s of %.60q (%d bytes): %d %s, %d bytes %.100q", name, payload, len(payload), o.Status, o.Code, len(o.Data), o.Data)
				}
			}
		}
	})
}
