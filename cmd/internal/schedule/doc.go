// Package schedule decides when the jobs of schedules are due, and for which due times a job is
// made. It has no clock, makes no jobs and stores nothing: the doors do that, with the time of
// their stores.
package schedule
