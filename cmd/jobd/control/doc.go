// Package control is the control protocol of a jobd daemon: the requests that
// clients and the master make, and the daemon's own connection to its master.
//
// What the requests do to targets and rows is an Engine's affair; the package
// neither sees a database nor starts a process.
package control
