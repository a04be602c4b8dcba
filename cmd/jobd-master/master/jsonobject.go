package master

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"gloom/cmd/jobd/eot"
)

// jsonObject is a JSON object that is being built. Values are kept as received, so that outputs of
// jobs are not decoded and encoded again.
type jsonObject struct {
	members []eot.Member
	index   map[string]int
}

func (c *jsonObject) set(name string, value json.RawMessage) {
	if c.index == nil {
		c.index = make(map[string]int)
	}
	if i, ok := c.index[name]; ok {
		c.members[i].Value = value
		return
	}
	c.index[name] = len(c.members)
	c.members = append(c.members, eot.Member{Name: name, Value: value})
}

func (c *jsonObject) setText(name, text string) { c.set(name, eot.AppendString(nil, text)) }

// merge adds the members of an object.
func (c *jsonObject) merge(object json.RawMessage) {
	for _, m := range eot.Members(object) {
		c.set(m.Name, m.Value)
	}
}

func (c *jsonObject) has(name string) bool {
	_, ok := c.index[name]
	return ok
}

func (c *jsonObject) get(name string) json.RawMessage {
	if i, ok := c.index[name]; ok {
		return c.members[i].Value
	}
	return nil
}

// sortedMembers returns the members sorted as JavaScript sorts them: numbers first, ascending.
func (c *jsonObject) sortedMembers() []eot.Member {
	list := slices.Clone(c.members)
	slices.SortStableFunc(list, func(a, b eot.Member) int {
		m, errM := strconv.ParseUint(a.Name, 10, 32)
		n, errN := strconv.ParseUint(b.Name, 10, 32)
		switch {
		case errM == nil && errN == nil:
			return cmp.Compare(m, n)
		case errM == nil:
			return -1
		case errN == nil:
			return 1
		}
		return 0
	})
	return list
}

func (c *jsonObject) sorted() json.RawMessage {
	return (&jsonObject{members: c.sortedMembers()}).json()
}

func (c *jsonObject) json() json.RawMessage {
	out := []byte{'{'}
	for i, m := range c.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(eot.AppendString(out, m.Name), ':')
		out = append(out, m.Value...)
	}
	return append(out, '}')
}
