// Package job defines the vocabulary of the serverless queue: the names of clients and types, ids,
// handlers, and the meaning of a run's status.
package job
