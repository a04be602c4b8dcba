// Package job is the vocabulary of the serverless queue: the names of clients
// and types, ids, handlers, and what a run's status means. It does nothing.
package job
