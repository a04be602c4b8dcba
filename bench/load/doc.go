// Package load makes work for a job server and checks what comes back:
// submitters and workers on a few event loops, a book of what each submitter
// is owed, a pacer for fixed rates, and the churn of peers that come and go.
//
// It knows no protocol (Protocol is given to it), starts no server, and
// judges no figures: it counts.
package load
