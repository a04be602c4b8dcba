// Package probe holds black-box tests of the broker daemon. They build
// gloomd, start it on free loopback ports and judge it by what its sockets
// and its exit code show.
//
// The package imports nothing of the broker or of the wire format: frames are
// written and read by a codec of its own, so that a mistake there cannot
// excuse the same mistake here.
//
// GLOOM_PROBE_DAEMON names a ready binary to test in place of a fresh build.
package probe
