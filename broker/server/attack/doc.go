// Package attack holds attacks on a running gloomd: peers that hoard, flood, do not read or do not
// finish. Each test is one attack. The broker is judged from outside: by the resident memory that
// the kernel reports, by the duration of other peers' pings, and by whether innocent peers are
// served.
package attack
