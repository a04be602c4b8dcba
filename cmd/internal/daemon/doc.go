// Package daemon is what the programs jobd and jobd-master have in common:
// their command line, their log, and the optional HTTP port.
package daemon
