// Package launch starts processes, reports how they ended, and makes sure that they do not outlive
// the program that started them. It does not know jobs or brokers.
//
// Each process has its own process group. A process counts as ended even if descendants still
// hold the outputs that they inherited. When the program dies, the kernel ends the process (on
// Linux), and a Guard ends its descendants too.
package launch
