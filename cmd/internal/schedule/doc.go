// Package schedule says when the jobs of schedules are due, and which of them must be made. It has
// no clock, makes no jobs and stores nothing: the doors do that, with the time of their stores.
package schedule
