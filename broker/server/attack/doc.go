// Package attack holds attacks on a running gloomd: peers that hoard, flood, do
// not read or do not finish. Each test is one attack. It is judged from outside: by the
// resident memory that the kernel reports, by how long the pings of other peers take, and by
// whether innocent peers are served.
package attack
