// Package job has the vocabulary of JQ: jobs, their outcomes, workers, constraints, and errors.
package job
