// Package result defines the file that a bench run writes: JSON with the environment of the run and
// every round's raw figures. A measurement writes such a file, and a report reads it. The package
// itself neither measures nor compares.
package result
