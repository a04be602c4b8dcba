package probe

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// jsonList returns these strings as a JSON array.
func jsonList(names ...string) string {
	out, err := json.Marshal(names)
	if err != nil {
		panic(err)
	}
	return string(out)
}

// joinWorker returns a worker that joined with these names and patterns.
func (d *daemon) joinWorker(t tb, types ...string) worker {
	t.Helper()
	w := d.worker(t)
	w.joinTypes(jsonList(types...), "")
	return w
}

// joinTypes joins with a list of types, as JSON. The string fields adds keys to the frame.
func (w worker) joinTypes(types, fields string) {
	w.t.Helper()
	w.send(`{"action":"join","types":%s%s}`, types, fields)
	w.wantOK()
}

// serveTypes submits a job of each type, has one worker answer it, and checks the type in the
// job frame.
func serveTypes(t tb, s submitter, w worker, types ...string) {
	t.Helper()
	for _, typ := range types {
		id := s.submitFresh(typ, `1`)
		if f := w.want("job"); f.text("id") != id || f.text("type") != typ {
			t.Fatalf("got %s, want job %q of type %q", f, id, typ)
		}
		w.respond(`2`)
		s.wantResult(id, `2`)
	}
}

// callHTTP sends an HTTP request, checks the status (want 200 accepts any 2xx), and returns the
// body.
func (d *daemon) callHTTP(t tb, method, path, reqBody string, want int) string {
	t.Helper()
	status, body, err := d.requestWith(method, path, "", reqBody)
	if err != nil || status != want && !(want == 200 && status/100 == 2) {
		t.Fatalf("%s %s %.200s: status %d, %v, %.500s; want %d", method, path, reqBody, status, err, body, want)
	}
	return body
}

// limitType sets the limits of a type over HTTP.
func (d *daemon) limitType(t tb, typ, limits string) {
	t.Helper()
	d.callHTTP(t, "PUT", "/v1/types/"+url.PathEscape(typ)+"/limits", limits, 200)
}

func TestWorkerServesSeveralTypes(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("each name is served, and job frames carry it", func(t *testing.T) {
		type1, type2, type3 := freshName("multi"), freshName("multi"), freshName("multi")
		s, w := b.submitter(t), b.joinWorker(t, type1, type2, type3)
		serveTypes(t, s, w, type3, type1, type2, type2, type1)
		s.submitFresh(freshName("foreign"), `1`)
		w.wantQuiet()
	})
	t.Run("a pattern serves types that come into being later", func(t *testing.T) {
		p := freshName("later")
		w := b.joinWorker(t, p+"-*")
		s := b.submitter(t)
		serveTypes(t, s, w, p+"-a", p+"-", p+"-b-c", p+"-*")
		s.submitFresh(p, `1`)
		w.wantQuiet()
	})
	t.Run("a pattern serves what waits already", func(t *testing.T) {
		p := freshName("waits")
		s := b.submitter(t)
		first, second := s.submitFresh(p+"-x", `1`), s.submitFresh(p+"-y", `1`)
		w := b.joinWorker(t, p+"-*")
		w.wantJob(first)
		w.respond(`1`)
		w.wantJob(second)
	})
	t.Run("names and patterns mixed, overlapping ones too", func(t *testing.T) {
		p, otherType := freshName("mixed"), freshName("mixed-other")
		s, w := b.submitter(t), b.joinWorker(t, p+"*", p+"-a", p+"-*", otherType)
		serveTypes(t, s, w, p+"-a", otherType, p, p+"-z")
		w.wantQuiet()
	})
	t.Run("type is never a pattern", func(t *testing.T) {
		p := freshName("literal")
		s, w := b.submitter(t), b.servingWorker(t, p+"*")
		s.submitFresh(p+"x", `1`)
		s.submitFresh(p, `1`)
		w.wantQuiet()
		serveTypes(t, s, w, p+"*")
	})
	t.Run("names by value, escapes or not", func(t *testing.T) {
		p := freshName("value")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(`["`+p+`\u00e9","`+p+`\u002d\u002a"]`, "")
		serveTypes(t, s, w, p+"é", p+"-later")
	})
	t.Run("the best job of all: priority, then age, whatever the type", func(t *testing.T) {
		types := []string{freshName("best"), freshName("best"), freshName("best")}
		s := b.submitter(t)
		var equal []string
		for i := range 9 {
			equal = append(equal, s.submitFresh(types[i%3], `1`))
		}
		topID := s.submitFreshWith(types[1], `1`, `,"priority":5`)
		lowID := s.submitFreshWith(types[0], `1`, `,"priority":-5`)
		highID := s.submitFreshWith(types[2], `1`, `,"priority":9`)
		w := b.joinWorker(t, types...)
		for _, id := range append(append([]string{highID, topID}, equal...), lowID) {
			w.wantJob(id)
			w.respond(`1`)
		}
	})
	t.Run("the same through a pattern", func(t *testing.T) {
		p := freshName("best")
		s := b.submitter(t)
		var want []string
		for i := range 12 {
			want = append(want, s.submitFreshWith(fmt.Sprintf("%s-%d", p, i*5%12), `1`, fmt.Sprintf(`,"priority":%d`, -i/4)))
		}
		w := b.joinWorker(t, p+"-*")
		for _, id := range want {
			w.wantJob(id)
			w.respond(`1`)
		}
	})
	t.Run("each join replaces the one before", func(t *testing.T) {
		type1, type2, type3 := freshName("again"), freshName("again"), freshName("again")
		s, w := b.submitter(t), b.joinWorker(t, type1, type2)
		w.joinTypes(jsonList(type2, type3), "")
		s.submitFresh(type1, `1`)
		w.wantQuiet()
		serveTypes(t, s, w, type3, type2)
		w.join(type3)
		s.submitFresh(type2, `1`)
		w.wantQuiet()
		serveTypes(t, s, w, type3)
	})
	t.Run("joining again at work", func(t *testing.T) {
		type1, type2 := freshName("again"), freshName("again")
		s, w := b.submitter(t), b.joinWorker(t, type1, freshName("again"))
		id := s.submitFresh(type1, `1`)
		w.wantJob(id)
		w.joinTypes(jsonList(type2+"*"), "")
		w.wantQuiet()
		w.respond(`2`)
		s.wantResult(id, `2`)
		serveTypes(t, s, w, type2+"-x")
	})
	t.Run("prefetch over several types", func(t *testing.T) {
		type1, type2 := freshName("fetch"), freshName("fetch")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(type1, type2), `,"prefetch":3`)
		ids := []string{s.submitFresh(type1, `1`), s.submitFresh(type2, `1`), s.submitFresh(type1, `1`), s.submitFresh(type2, `1`)}
		for _, id := range ids[:3] {
			w.wantJob(id)
		}
		w.wantQuiet()
		w.respondTo(ids[1], `1`)
		w.wantJob(ids[3])
		for _, id := range []string{ids[0], ids[2], ids[3]} {
			w.respondTo(id, `1`)
		}
	})
	t.Run("cancel notices", func(t *testing.T) {
		typ := freshName("notice")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(typ, freshName("notice")), `,"cancel":true`)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.cancel(id)
		w.wantNotice(id)
		w.respond(`1`)
	})
	t.Run("leave leaves them all", func(t *testing.T) {
		p, typ := freshName("leave"), freshName("leave")
		s, w := b.submitter(t), b.joinWorker(t, p+"*", typ)
		w.leave()
		s.submitFresh(p+"x", `1`)
		s.submitFresh(typ, `1`)
		w.wantQuiet()
		w.joinTypes(jsonList(typ), "")
		w.nextJob()
	})
	t.Run("a lost worker's job goes to one with another set", func(t *testing.T) {
		p := freshName("lost")
		s, w := b.submitter(t), b.joinWorker(t, p+"-a", p+"-b")
		id := s.submitFresh(p+"-a", `1`)
		w.wantJob(id)
		successor := b.joinWorker(t, p+"*")
		w.close()
		successor.wantJob(id)
	})
	t.Run("workers with room take turns, whatever their sets", func(t *testing.T) {
		type1, type2 := freshName("turn"), freshName("turn")
		s := b.submitter(t)
		workers := []worker{b.joinWorker(t, type1, type2), b.joinWorker(t, type1+"*", type1), b.servingWorker(t, type1)}
		for range 2 {
			ids := map[string]bool{}
			for range 3 {
				ids[s.submitFresh(type1, `1`)] = true
			}
			for _, w := range workers { // each worker has exactly one job
				if id, _ := w.nextJob(); !ids[id] {
					t.Errorf("job %q is none of %v", id, ids)
				}
			}
			for _, w := range workers {
				w.respond(`1`)
			}
			for range 3 {
				s.want("result")
			}
		}
	})
	t.Run("a thousand names", func(t *testing.T) {
		p := freshName("many")
		var names []string
		for i := range 1000 {
			names = append(names, fmt.Sprintf("%s-%d", p, i))
		}
		s, w := b.submitter(t), b.joinWorker(t, names...)
		serveTypes(t, s, w, p+"-0", p+"-999", p+"-500")
		s.submitFresh(p+"-1000", `1`)
		w.wantQuiet()
		// a name that is listed twice counts once
		secondWorker := b.joinWorker(t, append(names, names[:7]...)...)
		secondWorker.wantQuiet()
		secondWorker.send(`{"action":"join","types":%s}`, jsonList(append(names, p+"-one-too-many")...))
		checkReason(t, secondWorker.wantError("invalid_value"), "types", "1001", "1000")
	})
	t.Run("hello says how many", func(t *testing.T) {
		if got := helloLimits(t, b)["max_types"]; got != 1000 {
			t.Errorf("max_types is %d, want 1000", got)
		}
	})
	t.Run("a name makes a type, a pattern none", func(t *testing.T) {
		p := freshName("being")
		b.joinWorker(t, p+"-named", p+"-p*")
		b.callHTTP(t, "GET", "/v1/types/"+p+"-named", "", 200)
		b.callHTTP(t, "GET", "/v1/types/"+url.PathEscape(p+"-p*"), "", 404)
		b.callHTTP(t, "GET", "/v1/types/"+p+"-p", "", 404)
	})
	t.Run("on the submit port", func(t *testing.T) {
		s := b.submitter(t)
		s.send(`{"action":"join","types":["a"]}`)
		checkReason(t, s.wantError("invalid_action"), "not_a_slave")
	})
}

// TestPatterns checks which names a pattern matches. P and Q are replaced by prefixes that only
// this case uses.
func TestPatterns(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, c := range []struct {
		pattern, typ string
		fits         bool
	}{
		{"P*", "P", true}, {"P*", "Pxyz", true}, {"P*", "P*", true}, {"P*", "yP", false},
		{"P*z", "Pz", true}, {"P*z", "Pazz", true}, {"P*z", "Pzx", false}, {"P*z", "P", false},
		{"*P", "xP", true}, {"*P", "P", true}, {"*P", "Px", false},
		{"*P*", "aPb", true}, {"*P*", "P", true},
		{"P**", "P", true}, {"P***x", "Px", true}, {"P***x", "P", false},
		{"P*a*b", "P-a-b", true}, {"P*a*b", "Pab", true}, {"P*a*b", "P-b-a", false}, {"P*aab", "Paaab", true},
		{"P*ab*ab", "Pab", false}, {"P*ab*ab", "Pabab", true}, {"Pab*ba", "Paba", false},
		{"P.*", "Px", false}, {"P?*", "Pxy", false}, {"P[ab]*", "Pa", false}, {"P[ab]*", "P[ab]c", true},
		{`P\*`, "P*", false}, {`P\*`, `P\x`, true}, {"P+*", "PPP", false}, {"(P*", "(Px", true}, {"^P*", "Px", false},
		{"P*é", "P-ééé", true}, {"P*é", "P-è", false}, {"P*", "P\n\x00\t", true}, {"P*/x", "P/a/b/x", true},
		{"PX*", "Pxa", false}, {"P😀*", "P😀", true}, {"P*%41", "PA", false},
	} {
		t.Run(fmt.Sprintf("%q and %q", c.pattern, c.typ), func(t *testing.T) {
			t.Parallel()
			p := freshName("pat") + "-"
			own := func(s string) string { return strings.ReplaceAll(s, "P", p) }
			s, w := b.submitter(t), b.joinWorker(t, own(c.pattern))
			id := s.submitFresh(own(c.typ), `1`)
			if c.fits {
				w.wantJob(id)
			}
			w.wantQuiet()
		})
	}
	t.Run("a star alone serves all", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		s, w := b.submitter(t), b.joinWorker(t, "*")
		serveTypes(t, s, w, "a", "*", "default", "é", "a b")
	})
	t.Run("hostile ones cost next to nothing", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		var starPatterns, alternatingPatterns []string
		for i := range 1000 {
			starPatterns = append(starPatterns, strings.Repeat("*", 1000)+fmt.Sprintf("%024d", i))
			alternatingPatterns = append(alternatingPatterns, strings.Repeat("*a", 500)+fmt.Sprintf("*%023d", i))
		}
		s := b.submitter(t)
		typ := strings.Repeat("a", 1000)
		begin := time.Now()
		for _, set := range [][]string{starPatterns, alternatingPatterns} {
			w := b.joinWorker(t, set...)
			for i := range 20 {
				s.submitFresh(fmt.Sprintf("%s%d", typ, i), `1`)
			}
			w.wantQuiet()
		}
		checkSoonAfter(t, begin, 0, "done with hostile patterns")
		b.checkAlive(t)
	})
}

func TestExceptLeavesTypesOut(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("a name", func(t *testing.T) {
		p := freshName("except")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"*"), `,"except":`+jsonList(p+"-a"))
		s.submitFresh(p+"-a", `1`)
		w.wantQuiet()
		serveTypes(t, s, w, p+"-b", p+"-aa")
	})
	t.Run("a pattern", func(t *testing.T) {
		p := freshName("except")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"*"), `,"except":`+jsonList(p+"-a*", "*-z"))
		for _, typ := range []string{"-a", "-abc", "-q-z"} {
			s.submitFresh(p+typ, `1`)
		}
		w.wantQuiet()
		serveTypes(t, s, w, p+"-b", p)
	})
	t.Run("a name that is listed", func(t *testing.T) {
		p := freshName("except")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"-a", p+"-b"), `,"except":`+jsonList(p+"-a"))
		s.submitFresh(p+"-a", `1`)
		w.wantQuiet()
		serveTypes(t, s, w, p+"-b")
	})
	t.Run("fitting nothing", func(t *testing.T) {
		p := freshName("except")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"-a"), `,"except":`+jsonList(p+"-none", "nothing-*"))
		serveTypes(t, s, w, p+"-a")
	})
	t.Run("all of it", func(t *testing.T) {
		p := freshName("except")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"*"), `,"except":["*"]`)
		s.submitFresh(p+"-a", `1`)
		w.wantQuiet()
	})
	t.Run("set anew by each join", func(t *testing.T) {
		p := freshName("except")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"*"), `,"except":`+jsonList(p+"-a"))
		s.submitFresh(p+"-a", `1`)
		w.wantQuiet()
		w.joinTypes(jsonList(p+"*"), "")
		w.nextJob()
	})
	t.Run("null counts as absent", func(t *testing.T) {
		p := freshName("except")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"*"), `,"except":null,"type":null`)
		serveTypes(t, s, w, p+"-a")
		w.send(`{"action":"join","type":%q,"types":null,"except":null}`, p+"-b")
		w.wantOK()
		serveTypes(t, s, w, p+"-b")
	})
}

func TestInvalidTypesAreRefused(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("kept")
	// All cases use one connection, because a refused join changes nothing.
	s, w := b.submitter(t), b.joinWorker(t, typ)
	long := strings.Repeat("x", 1025)
	for _, c := range []struct {
		name, keys, code string
		names            []string
	}{
		{"neither", `"prefetch":5`, "missing_field", []string{"type"}},
		{"both null", `"type":null,"types":null`, "missing_field", []string{"type"}},
		{"both", `"type":"a","types":["b"]`, "invalid_value", []string{"types"}},
		{"both, the same", `"types":["a"],"type":"a"`, "invalid_value", []string{"types"}},
		{"an empty list", `"types":[]`, "invalid_value", []string{"types"}},
		{"an empty list, spaced", `"types":[ ]`, "invalid_value", []string{"types"}},
		{"a string", `"types":"a"`, "invalid_type", []string{"types"}},
		{"an object", `"types":{"a":1}`, "invalid_type", []string{"types"}},
		{"a number", `"types":5`, "invalid_type", []string{"types", "5"}},
		{"false", `"types":false`, "invalid_type", []string{"types"}},
		{"a number inside", `"types":["a",5]`, "invalid_type", []string{"types"}},
		{"null inside", `"types":["a",null]`, "invalid_type", []string{"types"}},
		{"a list inside", `"types":[["a"]]`, "invalid_type", []string{"types"}},
		{"an empty name", `"types":["a",""]`, "invalid_type", []string{"types"}},
		{"a lone surrogate", `"types":["\ud800"]`, "invalid_type", []string{"types"}},
		{"a long name", `"types":["` + long + `"]`, "invalid_type|invalid_value", []string{"types", "1024"}},
		{"a long pattern", `"types":["` + long + `*"]`, "invalid_type|invalid_value", []string{"types", "1024"}},
		{"except with type", `"type":"a","except":["b"]`, "invalid_value", []string{"except"}},
		{"except, empty", `"types":["a"],"except":[]`, "invalid_value", []string{"except"}},
		{"except, a string", `"types":["a"],"except":"b"`, "invalid_type", []string{"except"}},
		{"except, a number inside", `"types":["a"],"except":[1]`, "invalid_type", []string{"except"}},
		{"except, an empty name", `"types":["a"],"except":[""]`, "invalid_type", []string{"except"}},
		{"except, a long name", `"types":["a"],"except":["` + long + `"]`, "invalid_type|invalid_value", []string{"except", "1024"}},
		{"except alone", `"except":["b"]`, "missing_field|invalid_value", []string{"type"}},
		{"prefetch beside", `"types":["a"],"prefetch":0`, "invalid_value", []string{"prefetch", "0"}},
		{"headers, a number", `"types":["a"],"headers":1`, "invalid_type", []string{"headers", "1"}},
		{"headers, a string", `"types":["a"],"headers":"true"`, "invalid_type", []string{"headers"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, w := submitter{&conn{t, s.net, s.in}}, worker{&conn{t, w.net, w.in}}
			w.send(`{"action":"join",%s}`, c.keys)
			checkReason(t, w.wantError(c.code), c.names...)
			serveTypes(t, s, w, typ)
		})
	}
	t.Run("except, one too many", func(t *testing.T) {
		var names []string
		for i := range 1001 {
			names = append(names, fmt.Sprintf("n-%d", i))
		}
		w.send(`{"action":"join","types":["a"],"except":%s}`, jsonList(names...))
		checkReason(t, w.wantError("invalid_value"), "except", "1001", "1000")
		serveTypes(t, s, w, typ)
	})
}

// TestTypeLimitsHoldBackOnlyTheirJobs: a pause and limits of a type apply only to that type's jobs.
func TestTypeLimitsHoldBackOnlyTheirJobs(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("pause", func(t *testing.T) {
		pausedType, openType := freshName("paused"), freshName("open")
		s, w := b.submitter(t), b.joinWorker(t, pausedType, openType)
		b.callHTTP(t, "POST", "/v1/types/"+pausedType+"/pause", "{}", 200)
		heldID := s.submitFreshWith(pausedType, `1`, `,"priority":9`)
		id := s.submitFresh(openType, `1`)
		w.wantJob(id)
		w.respond(`1`)
		w.wantQuiet()
		b.callHTTP(t, "POST", "/v1/types/"+pausedType+"/resume", "{}", 200)
		w.wantJob(heldID)
	})
	t.Run("concurrency", func(t *testing.T) {
		one, two := freshName("narrow"), freshName("open")
		b.limitType(t, one, `{"concurrency":1}`)
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(one, two), `,"prefetch":10`)
		first := s.submitFreshWith(one, `1`, `,"priority":9`)
		second := s.submitFreshWith(one, `1`, `,"priority":9`)
		third := s.submitFresh(two, `1`)
		w.wantJob(first)
		w.wantJob(third)
		w.wantQuiet()
		w.respondTo(first, `1`)
		w.wantJob(second)
	})
	t.Run("rate with burst", func(t *testing.T) {
		one, two := freshName("slow"), freshName("open")
		b.limitType(t, one, `{"rate":0.001,"burst":2}`)
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(one, two), `,"prefetch":10`)
		first, second := s.submitFresh(one, `1`), s.submitFresh(one, `1`)
		s.submitFresh(one, `1`)
		lastID := s.submitFresh(two, `1`)
		w.wantJob(first)
		w.wantJob(second)
		w.wantJob(lastID)
		w.wantQuiet()
	})
}

func TestTokensLimitTypesOfJoins(t *testing.T) {
	t.Parallel()
	b := start(t, "--token-file="+tokenFile(t, tokenLines))
	s := b.submitterAs(t, "all-1")
	for _, c := range []struct {
		name, types string
		servedTypes []string
		not         []string
	}{
		{"a name of ours beside another", `["img-a","other"]`, []string{"img-a"}, []string{"other"}},
		{"a pattern reads further than the token", `["*"]`, []string{"img-b", "thumb"}, []string{"other2", "thumbs"}},
		{"a pattern across the border", `["im*","thumb*"]`, []string{"img-c", "thumb"}, []string{"imx", "thumbs2"}},
		{"a foreign name beside a pattern", `["other3","img-d*"]`, []string{"img-d"}, []string{"other3"}},
		{"a pattern of which nothing is ours", `["zzz-*"]`, nil, []string{"zzz-a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := b.workerAs(t, "img-1")
			defer w.close()
			w.joinTypes(c.types, "")
			for _, typ := range c.not {
				s.submitFresh(typ, `1`)
			}
			w.wantQuiet()
			serveTypes(t, s, w, c.servedTypes...)
			w.leave()
		})
	}
	t.Run("no name of ours and no pattern", func(t *testing.T) {
		w := b.workerAs(t, "img-1")
		w.joinTypes(`["img-kept"]`, "")
		for _, types := range []string{`["other"]`, `["other","img","thumbs"]`} {
			w.send(`{"action":"join","types":%s}`, types)
			w.wantError("forbidden")
		}
		serveTypes(t, s, w, "img-kept") // the refused joins changed nothing
	})
	t.Run("without the scope", func(t *testing.T) {
		w := b.workerAs(t, "sub-1")
		w.send(`{"action":"join","types":["*"]}`)
		w.wantError("forbidden")
	})
}
