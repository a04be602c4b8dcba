//go:build race

package main

// raceFlags build the tool as this test is built.
var raceFlags = []string{"-race"}
