package store

// maxJobsPerCall is the maximum number of jobs of one call of a script, because Redis does nothing else
// meanwhile. A batch that comes in one request may have more.
const maxJobsPerCall = 256

// joinOps divides the transitions of a round into calls of scripts. The transitions of one job keep
// their order: a round has at most one transition of a job, apart from fetch and forget, and no
// transition overtakes a fetch or a forget.
func joinOps(round []*op) [][]*op {
	type open struct{ at, jobs int }
	var calls [][]*op
	openCalls := make(map[*transition]open, 2) // calls to which transitions may still be added
	for _, o := range round {
		call, ok := openCalls[o.transition]
		jobs := len(o.keys) - o.transition.sharedKeys
		switch {
		case o.transition.sharedKeys == 0:
			clear(openCalls)
			fallthrough
		case o.notJoined:
			calls = append(calls, []*op{o})
		case ok && call.jobs+jobs <= maxJobsPerCall:
			calls[call.at] = append(calls[call.at], o)
			openCalls[o.transition] = open{call.at, call.jobs + jobs}
		default:
			openCalls[o.transition] = open{len(calls), jobs}
			calls = append(calls, []*op{o})
		}
	}
	return calls
}

// scriptArgs returns the command that runs a script for some transitions.
func (r *Redis) scriptArgs(ops []*op, lease string, ackedSeq uint64) []any {
	t := ops[0].transition
	keys, args := 2+t.sharedKeys, 0
	for _, o := range ops {
		keys += len(o.keys) - t.sharedKeys
		args += len(o.args)
	}
	words := append(make([]any, 0, 5+keys+args), "EVALSHA", t.Hash(), keys, r.keys.lease, r.keys.seq)
	for i, o := range ops {
		for at, key := range o.keys {
			if i == 0 || at >= t.sharedKeys {
				words = append(words, key)
			}
		}
	}
	words = append(words, lease, ackedSeq)
	for i, o := range ops {
		if i == 0 {
			words = append(words, o.args...)
		} else {
			words = append(words, o.args[t.sharedArgs:]...)
		}
	}
	return words
}

// opError says why a transition was refused although others in the same call were made.
type opError string

func (r opError) Error() string { return string(r) }
func (opError) RedisError()     {}

// errorsByIndex returns the refusals of a call by the index of the transition, from 1.
func errorsByIndex(answer []any) map[int64]error {
	if len(answer) == 0 {
		return nil
	}
	refusals := make(map[int64]error, len(answer)/2)
	for i := 0; i+1 < len(answer); i += 2 {
		n, _ := answer[i].(int64)
		text, _ := answer[i+1].(string)
		refusals[n] = opError(text)
	}
	return refusals
}
