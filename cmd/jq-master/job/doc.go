// Package job is what the parts of JQ say to each other: jobs, their outcomes,
// workers, constraints, and errors. It does nothing by itself.
package job
