// Package control is the control protocol of a jobd daemon: the requests that
// clients and the master make, and the daemon's own connection to its master.
//
// An Engine carries out the requests. This package uses no database and starts no processes.
package control
