package master

import "gloom/cmd/jq-master/job"

// Compile makes a picker of a constraint, or says what is wrong with it.
func Compile(k *job.Constraint) (picker, *job.Fault) {
	return picker{match: func(*job.Attributes) bool { return true }}, nil
}
