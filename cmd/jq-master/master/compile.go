package master

import (
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/matcher"
)

// Compile returns the selector of a constraint, or says what is wrong with the constraint.
func Compile(k *job.Constraint) (selector, *job.Fault) {
	m, fault := matcher.Parse(k.Match)
	if fault != nil {
		return selector{}, fault
	}
	if k.Per == "" {
		return selector{match: m.Match}, nil
	}
	at, fault := matcher.ParsePointer(k.Per)
	if fault != nil {
		fault.Field = "per"
		return selector{}, fault
	}
	return selector{match: m.Match, valueOf: func(a *job.Attributes) []byte {
		v, found := at.Value(a)
		if !found {
			return []byte{0xc1} // a byte that begins no MessagePack value
		}
		return v
	}}, nil
}
