package matcher

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

func packJSON(t testing.TB, text string) pack.Value {
	t.Helper()
	v, fault := pack.FromJSON([]byte(text))
	if fault != nil {
		t.Fatalf("%s: %v", text, fault)
	}
	return v
}

// sample returns the attributes of a job whose argument has values of every kind.
func sample(t testing.TB) *job.Attributes {
	return &job.Attributes{
		Name: "mail.send", Priority: -3, MaxRetry: 10, Timeout: 30_000, KeepResult: true,
		Argument: packJSON(t, `{
			"n": 5, "f": 1.0, "big": 9223372036854775809, "s": "é", "empty": "", "b": true, "nil": null, "nan": {"$float":"NaN"},
			"bin": {"$bin":"AQI="}, "ext": {"$ext":[5,"AQ=="]}, "list": [1, "two", [3]], "user": {"id": 7, "a/b": 1, "m~n": 2, "0": "zero"},
			"odd": {"$map":[[1,"one"],["k",2]]}, "twice": 1, "twice": 2, "": "no name", "long": "`+strings.Repeat("x", 70_000)+`"}`),
	}
}

func field(path, op, value string) string {
	return fmt.Sprintf(`{"field":%q,"op":%q,"value":%s}`, path, op, value)
}

// TestOperatorsSelectRightJobs: each form and operator selects the right jobs.
func TestOperatorsSelectRightJobs(t *testing.T) {
	a := sample(t)
	always, never := field("/name", "exists", "true"), field("/name", "exists", "false")
	for _, c := range []struct {
		match string
		want  bool
	}{
		{`{}`, true}, {`{"not":{}}`, false}, {`{"all":[]}`, true}, {`{"any":[]}`, false},
		{`{"all":[{},` + always + `]}`, true}, {`{"all":[` + always + `,` + never + `]}`, false},
		{`{"any":[` + never + `,` + always + `]}`, true}, {`{"any":[` + never + `]}`, false}, {`{"not":{"any":[` + never + `]}}`, true},

		{field("/name", "eq", `"mail.send"`), true}, {field("/name", "ne", `"mail.send"`), false}, {field("/name", "lt", `"mail.t"`), true},
		{field("/name", "glob", `"mail.*"`), true}, {field("/name", "glob", `"mail"`), false}, {field("/name", "regex", `"^m.+d$"`), true}, {field("/name", "regex", `"ail"`), true},
		{field("/priority", "eq", `-3`), true}, {field("/priority", "lt", `-2.5`), true}, {field("/priority", "type", `"number"`), true},
		{field("/max_retry", "ge", `10`), true}, {field("/timeout", "in", `[29,30]`), true}, {field("/keep_result", "eq", `true`), true}, {field("/argument/nothing", "exists", `false`), true},
		{field("/argument", "type", `"map"`), true}, {field("/argument/n", "eq", `5`), true}, {field("/argument/n", "eq", `5.0`), true}, {field("/argument/n", "eq", `"5"`), false},
		{field("/argument/n", "ne", `"5"`), true}, {field("/argument/n", "lt", `"6"`), false}, {field("/argument/n", "gt", `4`), true}, {field("/argument/f", "eq", `1`), true},
		{field("/argument/big", "gt", `9223372036854775808`), true}, {field("/argument/big", "eq", `9223372036854775808`), false}, {field("/argument/big", "eq", `9.223372036854775808e18`), false},
		{field("/argument/s", "eq", `"\u00e9"`), true}, {field("/argument/empty", "eq", `""`), true}, {field("/argument/empty", "regex", `"^$"`), true}, {field("/argument/b", "eq", `true`), true}, {field("/argument/b", "eq", `1`), false},
		{field("/argument/nil", "eq", `null`), true}, {field("/argument/nil", "exists", `true`), true}, {field("/argument/nil", "type", `"null"`), true}, {field("/argument/none", "eq", `null`), false}, {field("/argument/none", "ne", `1`), false},
		{field("/argument/nan", "eq", `{"$float":"NaN"}`), false}, {field("/argument/nan", "ne", `0`), true}, {field("/argument/nan", "lt", `0`), false}, {field("/argument/nan", "ge", `0`), false},
		{field("/argument/bin", "eq", `{"$bin":"AQI="}`), true}, {field("/argument/bin", "eq", `"\u0001\u0002"`), false}, {field("/argument/bin", "type", `"bin"`), true},
		{field("/argument/ext", "eq", `{"$ext":[5,"AQ=="]}`), true}, {field("/argument/ext", "eq", `{"$ext":[6,"AQ=="]}`), false}, {field("/argument/ext", "type", `"ext"`), true},
		{field("/argument/list/1", "eq", `"two"`), true}, {field("/argument/list/2/0", "eq", `3`), true}, {field("/argument/list/01", "exists", `true`), false}, {field("/argument/list/3", "exists", `true`), false}, {field("/argument/list/-", "exists", `true`), false},
		{field("/argument/list", "eq", `[1.0,"two",[3]]`), true}, {field("/argument/list", "eq", `[1,"two",[4]]`), false}, {field("/argument/list", "eq", `[1]`), false}, {field("/argument/list", "type", `"array"`), true},
		{field("/argument/user/id", "in", `[]`), false}, {field("/argument/user/id", "in", `["7",7.0]`), true}, {field("/argument/user/a~1b", "eq", `1`), true}, {field("/argument/user/m~0n", "eq", `2`), true}, {field("/argument/user/0", "eq", `"zero"`), true},
		{field("/argument/user", "eq", `{"m~n":2,"id":7,"0":"zero","a/b":1}`), true}, {field("/argument/user", "eq", `{"id":7}`), false}, {field("/argument/user", "in", `[{"0":"zero","m~n":2,"id":7.0,"a/b":1}]`), true},
		{field("/argument/odd/1", "exists", `true`), false}, {field("/argument/odd/k", "eq", `2`), true}, {field("/argument/twice", "eq", `2`), true}, {field("/argument/", "eq", `"no name"`), true},
		{field("/argument/long", "regex", `"x"`), false}, {field("/argument/n", "regex", `"5"`), false}, {field("/argument/n", "glob", `"*"`), false},
		{`{"op":"eq","value":1,"op":"ne","field":"/priority","value":2}`, true},
	} {
		m, fault := Parse(packJSON(t, c.match))
		if fault != nil {
			t.Errorf("%s: %v", c.match, fault)
		} else if got := m.Match(a); got != c.want {
			t.Errorf("%s is %v", c.match, got)
		}
	}
}

// TestInvalidMatcherNamesField: an invalid matcher is refused, and the fault names the field.
func TestInvalidMatcherNamesField(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"not":`, n-1) + `{}` + strings.Repeat(`}`, n-1) }
	wideMatch := func(n int) string { return `{"all":[` + strings.TrimSuffix(strings.Repeat(`{},`, n-1), ",") + `]}` }
	for _, c := range []struct {
		match string
		code  job.Code
		field string
	}{
		{nested(MaxDepth), job.Code{}, ""}, {nested(MaxDepth + 1), job.InvalidValue, "match" + strings.Repeat(".not", MaxDepth)},
		{wideMatch(MaxNodes), job.Code{}, ""}, {wideMatch(MaxNodes + 1), job.InvalidValue, "match"},
		{field("/name", "eq", `"`+strings.Repeat("x", MaxBytes)+`"`), job.InvalidValue, "match"},
		{`5`, job.InvalidType, "match"}, {`[]`, job.InvalidType, "match"}, {`{"all":{}}`, job.InvalidType, "match.all"}, {`{"all":[1]}`, job.InvalidType, "match.all[0]"},
		{`{"not":null}`, job.InvalidType, "match.not"}, {`{"all":[],"any":[]}`, job.InvalidValue, "match"}, {`{"all":[],"field":"/name"}`, job.InvalidValue, "match"}, {`{"x":1}`, job.InvalidValue, "match"},
		{`{"op":"eq"}`, job.InvalidValue, "match.op"}, {`{"all":[],"value":1}`, job.InvalidValue, "match.op"}, {`{"$map":[[1,2],["a",3]]}`, job.InvalidValue, "match"},
		{`{"any":[{},{"field":"/name"}]}`, job.MissingField, "match.any[1].op"}, {`{"field":"/name","op":"eq"}`, job.MissingField, "match.value"},
		{`{"field":1,"op":"eq","value":1}`, job.InvalidType, "match.field"}, {`{"field":"/name","op":1,"value":1}`, job.InvalidType, "match.op"},
		{field("name", "eq", "1"), job.InvalidValue, "match.field"}, {field("", "eq", "1"), job.InvalidValue, "match.field"}, {field("/nothing", "exists", "false"), job.InvalidValue, "match.field"}, {field("/name/x", "exists", "false"), job.InvalidValue, "match.field"}, {field("/a~2", "eq", "1"), job.InvalidValue, "match.field"}, {field("/a~", "eq", "1"), job.InvalidValue, "match.field"},
		{field("/name", "like", "1"), job.InvalidValue, "match.op"}, {field("/name", "lt", "true"), job.InvalidType, "match.value"}, {field("/name", "in", "1"), job.InvalidType, "match.value"},
		{field("/name", "glob", "1"), job.InvalidType, "match.value"}, {field("/name", "regex", `"("`), job.InvalidValue, "match.value"}, {field("/name", "regex", `"(?:a{40}){30}"`), job.InvalidValue, "match.value"}, {field("/name", "regex", `"(a)\\1"`), job.InvalidValue, "match.value"},
		{field("/name", "exists", "1"), job.InvalidType, "match.value"}, {field("/name", "type", `"integer"`), job.InvalidValue, "match.value"},
	} {
		_, fault := Parse(packJSON(t, c.match))
		switch {
		case c.code == (job.Code{}) && fault != nil:
			t.Errorf("%.60s: %v", c.match, fault)
		case c.code != (job.Code{}) && (fault == nil || fault.Code != c.code || fault.Field != c.field):
			t.Errorf("%.60s: %v, want %s of %s", c.match, fault, c.code, c.field)
		}
	}
}

// TestMatchesAll: MatchesAll recognises matchers that select all jobs because they name
// no field.
func TestMatchesAll(t *testing.T) {
	condition := field("/name", "exists", "true")
	for text, want := range map[string]bool{
		`{}`: true, condition: false, `{"all":[]}`: true, `{"any":[]}`: false, `{"not":{}}`: false, `{"not":{"any":[]}}`: true,
		`{"all":[{},` + condition + `]}`: false, `{"any":[{},` + condition + `]}`: true, `{"not":{"all":[` + condition + `,{"not":{}}]}}`: true, `{"not":{"any":[` + condition + `,{"not":{}}]}}`: false, `{"not":{"not":{}}}`: true,
	} {
		packed, _ := pack.FromJSON([]byte(text))
		m, fault := Parse(packed)
		if fault != nil {
			t.Fatal(fault)
		}
		if got := m.MatchesAll(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// TestPointerValue: equal values have the same bytes, unequal ones different bytes.
func TestPointerValue(t *testing.T) {
	a := sample(t)
	valueAt := func(path string) []byte {
		p, fault := ParsePointer(path)
		if fault != nil {
			t.Fatal(fault)
		}
		v, found := p.Value(a)
		if !found {
			t.Fatalf("%s is not found", path)
		}
		if fault := pack.Check(v); fault != nil {
			t.Fatalf("%s: %v", path, fault)
		}
		return v
	}
	for path, text := range map[string]string{
		"/name": `"mail.send"`, "/priority": `-3`, "/keep_result": `true`, "/argument/f": `1`, "/argument/list": `[1,"two",[3.0]]`,
		"/argument/user": `{"0":"zero","m~n":2.0,"id":1,"a/b":1,"id":7}`, "/argument/twice": `2`, "/argument/bin": `{"$bin":"AQI="}`, "/argument/nil": `null`,
	} {
		if want := appendCanonical(nil, packJSON(t, text)); !bytes.Equal(valueAt(path), want) {
			t.Errorf("%s is %x, want %x as %s", path, valueAt(path), want, text)
		}
	}
	if bytes.Equal(valueAt("/argument/empty"), valueAt("/argument/nil")) || bytes.Equal(valueAt("/argument/bin"), valueAt("/argument/ext")) {
		t.Error("unlike values share a form")
	}
	p, _ := ParsePointer("/argument/none/0")
	if _, found := p.Value(a); found {
		t.Error("a missing value is found")
	}
}

// TestPlainValues: for values that JSON has, a matcher agrees with a naive matcher that works on
// decoded values.
func TestPlainValues(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	values := []any{nil, true, false, -2.0, 0.0, 1.0, 1.5, 2.0, "", "a", "aa", "b", []any{1.0}, []any{}, map[string]any{}, map[string]any{"a": 1.0}}
	for range 3000 {
		argument := map[string]any{}
		for _, k := range []string{"x", "y", "0"} {
			if r.IntN(3) > 0 {
				argument[k] = values[r.IntN(len(values))]
			}
		}
		if r.IntN(2) == 0 {
			argument["in"] = map[string]any{"x": values[r.IntN(len(values))], "list": []any{values[r.IntN(len(values))], 1.0}}
		}
		cond := randomCondition(r, values, 3)
		m, fault := Parse(packJSON(t, encode(cond)))
		if fault != nil {
			t.Fatalf("%s: %v", encode(cond), fault)
		}
		a := &job.Attributes{Name: "n", Argument: packJSON(t, encode(argument))}
		if got, want := m.Match(a), naive(cond, argument); got != want {
			t.Fatalf("%s on %s is %v, want %v", encode(cond), encode(argument), got, want)
		}
	}
}

// FuzzParse: no input makes Parse or Match panic.
func FuzzParse(f *testing.F) {
	a := sample(f)
	for _, text := range []string{`{}`, `{"all":[{"not":{}}]}`, field("/argument/n", "eq", "5"), field("/name", "regex", `"a.*"`), field("/argument/list/2/0", "in", `[1,{"a":{}}]`), field("/argument/user", "eq", `{}`)} {
		f.Add([]byte(packJSON(f, text)), []byte(packJSON(f, `{"n":[1,{"a":"b"}]}`)))
	}
	f.Fuzz(func(t *testing.T, match, argument []byte) {
		if pack.Check(match) != nil {
			return
		}
		m, fault := Parse(match)
		if fault != nil {
			if !strings.HasPrefix(fault.Field, "match") || fault.Reason == "" {
				t.Fatalf("%x: %+v", match, fault)
			}
			return
		}
		m.Match(a)
		if pack.Check(argument) == nil && pack.Value(argument).Kind() == pack.Map {
			m.Match(&job.Attributes{Name: "x", Argument: argument})
		}
	})
}

// TestDeepCanonical: a long value is brought to its canonical form as fast when it is nested
// deeply.
func TestDeepCanonical(t *testing.T) {
	long := "[" + strings.Repeat("0,", 1<<17) + "0]"
	measure := func(text string) time.Duration {
		v := packJSON(t, text)
		minTime := time.Hour
		for range 3 {
			start := time.Now()
			appendCanonical(nil, v)
			minTime = min(minTime, time.Since(start))
		}
		return minTime
	}
	flatTime := measure(long)
	for open, end := range map[string]string{"[": "]", `{"a":`: "}", `{"b":1,"a":`: "}"} {
		if nested := measure(strings.Repeat(open, pack.MaxDepth-1) + long + strings.Repeat(end, pack.MaxDepth-1)); nested > 20*flatTime {
			t.Errorf("in %d %s: %v, alone %v", pack.MaxDepth-1, open, nested, flatTime)
		}
	}
}

func BenchmarkMatch(b *testing.B) {
	a := sample(b)
	m, fault := Parse(packJSON(b, `{"all":[`+field("/name", "glob", `"mail.*"`)+`,`+field("/argument/user/id", "eq", "7")+`,`+field("/argument/n", "lt", "6")+`]}`))
	if fault != nil {
		b.Fatal(fault)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !m.Match(a) {
			b.Fatal("no match")
		}
	}
}
