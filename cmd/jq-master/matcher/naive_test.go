package matcher

import (
	"encoding/json"
	"math/rand/v2"
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// The naive matcher of this file works on values that encoding/json has decoded.

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func randomCondition(r *rand.Rand, values []any, depth int) map[string]any {
	randomList := func() []any {
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = randomCondition(r, values, depth-1)
		}
		return list
	}
	if depth > 0 {
		switch r.IntN(6) {
		case 0:
			return map[string]any{"all": randomList()}
		case 1:
			return map[string]any{"any": randomList()}
		case 2:
			return map[string]any{"not": randomCondition(r, values, depth-1)}
		}
	}
	value := values[r.IntN(len(values))]
	op := []string{"eq", "ne", "lt", "le", "gt", "ge", "in", "glob", "regex", "exists", "type"}[r.IntN(11)]
	switch op {
	case "lt", "le", "gt", "ge":
		value = []any{-1.0, 0.0, 1.0, 1.5, "", "a", "b"}[r.IntN(7)]
	case "in":
		value = []any{value, values[r.IntN(len(values))]}[:r.IntN(3)]
	case "glob":
		value = []any{"*", "a*", "*a", "a"}[r.IntN(4)]
	case "regex":
		value = []any{"a", "^a$", "^$", "b|aa"}[r.IntN(4)]
	case "exists":
		value = r.IntN(2) == 0
	case "type":
		value = []any{"null", "boolean", "number", "string", "bin", "ext", "array", "map"}[r.IntN(8)]
	}
	paths := []string{"/argument/x", "/argument/y", "/argument/0", "/argument/in", "/argument/in/x", "/argument/in/list", "/argument/in/list/0", "/argument/in/list/1/0", "/argument/in/list/2", "/argument"}
	return map[string]any{"field": paths[r.IntN(len(paths))], "op": op, "value": value}
}

func naive(c map[string]any, argument map[string]any) bool {
	if parts, ok := c["all"].([]any); ok {
		for _, p := range parts {
			if !naive(p.(map[string]any), argument) {
				return false
			}
		}
		return true
	}
	if parts, ok := c["any"].([]any); ok {
		for _, p := range parts {
			if naive(p.(map[string]any), argument) {
				return true
			}
		}
		return false
	}
	if part, ok := c["not"].(map[string]any); ok {
		return !naive(part, argument)
	}
	got, found := any(argument), true
	for _, step := range strings.Split(c["field"].(string), "/")[2:] {
		switch v := got.(type) {
		case map[string]any:
			got, found = v[step], has(v, step)
		case []any:
			i, err := strconv.Atoi(step)
			if found = err == nil && i < len(v); found {
				got = v[i]
			}
		default:
			found = false
		}
		if !found {
			return c["op"] == "exists" && c["value"] == false
		}
	}
	want := c["value"]
	switch c["op"] {
	case "eq":
		return reflect.DeepEqual(got, want)
	case "ne":
		return !reflect.DeepEqual(got, want)
	case "in":
		for _, w := range want.([]any) {
			if reflect.DeepEqual(got, w) {
				return true
			}
		}
		return false
	case "exists":
		return want == true
	case "type":
		return kindOf(got) == want
	case "glob":
		s, ok := got.(string)
		fits, _ := path.Match(want.(string), s)
		return ok && fits
	case "regex":
		s, ok := got.(string)
		return ok && regexp.MustCompile(want.(string)).MatchString(s)
	}
	order := 0
	switch a := got.(type) {
	case float64:
		b, ok := want.(float64)
		if !ok {
			return false
		}
		order = int(min(1, max(-1, (a-b)*2)))
	case string:
		b, ok := want.(string)
		if !ok {
			return false
		}
		order = strings.Compare(a, b)
	default:
		return false
	}
	return map[string]bool{"lt": order < 0, "le": order <= 0, "gt": order > 0, "ge": order >= 0}[c["op"].(string)]
}

func has(m map[string]any, k string) bool { _, ok := m[k]; return ok }

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "map"
}
