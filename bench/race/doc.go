// Package race runs several shapes of load on several servers in one go, with
// rounds interleaved: a machine that slows down for a minute slows down all.
package race
