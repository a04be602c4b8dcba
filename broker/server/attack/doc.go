// Package attack holds attacks on a running gloomd: peers that hoard, flood, do
// not read or do not finish. Each test is one attack, judged from the outside: by
// the resident memory that the kernel reports, by how long others' pings take, and
// by whether innocent peers are served.
package attack
