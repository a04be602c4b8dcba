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

func (o *jsonObject) set(name string, value json.RawMessage) {
	if o.index == nil {
		o.index = make(map[string]int)
	}
	if i, ok := o.index[name]; ok {
		o.members[i].Value = value
		return
	}
	o.index[name] = len(o.members)
	o.members = append(o.members, eot.Member{Name: name, Value: value})
}

func (o *jsonObject) setText(name, text string) { o.set(name, eot.AppendString(nil, text)) }

// merge adds the members of an object.
func (o *jsonObject) merge(object json.RawMessage) {
	for _, m := range eot.Members(object) {
		o.set(m.Name, m.Value)
	}
}

func (o *jsonObject) get(name string) json.RawMessage {
	if i, ok := o.index[name]; ok {
		return o.members[i].Value
	}
	return nil
}

// sortedMembers returns the members in JavaScript's order: numbers come first, ascending.
func (o *jsonObject) sortedMembers() []eot.Member {
	list := slices.Clone(o.members)
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

func (o *jsonObject) encodeSorted() json.RawMessage {
	return (&jsonObject{members: o.sortedMembers()}).encode()
}

func (o *jsonObject) encode() json.RawMessage {
	out := []byte{'{'}
	for i, m := range o.members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(eot.AppendString(out, m.Name), ':')
		out = append(out, m.Value...)
	}
	return append(out, '}')
}
