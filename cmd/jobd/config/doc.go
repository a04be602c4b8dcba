// Package config reads the ini files of jobd, jobd-master and jobctl.
//
// The files are those of existing installations, so the reader follows the
// dialect that they were written for: what is a comment, what a quote takes
// away, when a value counts as absent, and which error comes first. Keys that
// are new here are all optional.
//
// The package opens files and nothing else: it resolves no names and checks
// no addresses.
package config
