// Package load makes work for a job server and checks the answers: submitters and
// workers on a few event loops, the outstanding jobs of each submitter, a
// pacer for fixed rates, and the churn of peers that come and go.
//
// It knows no protocol (it is given a Protocol), starts no server, and judges no
// figures: it counts.
package load
