// Package config reads the ini files of jobd, jobd-master and jobctl.
//
// The files are those of existing installations, so the reader follows their dialect:
// what a comment is, what quotes change, when a value counts as absent, and which error
// comes first. Keys that are newer than those installations are optional.
//
// The package only reads files: it resolves no names and checks no addresses.
package config
