// Package launch starts processes, tells how they ended, and sees to it that
// they do not outlive the program that started them. It knows nothing of jobs
// and brokers.
//
// A process lives in a group of its own and counts as ended when it has ended
// itself, whatever its descendants do with the outputs that they inherited.
// When the program dies, the kernel ends the process (on Linux), and a Guard
// ends its descendants too.
package launch
