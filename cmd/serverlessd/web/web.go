// Package web is the HTTP side of the serverless queue: requests, their checks,
// bodies and errors. It decides nothing about jobs.
package web
