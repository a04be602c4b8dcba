// Package race runs several shapes of load on several servers together, with
// interleaved rounds, so that a slow minute of the machine affects all servers.
package race
