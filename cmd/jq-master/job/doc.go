// Package job defines the vocabulary of JQ: jobs, their outcomes, workers, constraints, and errors.
package job
