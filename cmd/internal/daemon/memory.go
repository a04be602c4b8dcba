package daemon

import "gloom/broker/memory"

// LimitMemory makes the garbage collector run more often when the process takes more than three
// quarters of the memory of its host, or of its cgroup. Otherwise garbage, such as copies of large
// results, could be as large as all memory in use, and the kernel would kill the daemon.
func LimitMemory() { memory.SetPace(memory.OfHost() / 4 * 3) }
