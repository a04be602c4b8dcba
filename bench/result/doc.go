// Package result defines the file that a bench run writes: JSON with the environment of the run and
// every round's raw figures. Measuring writes it, reporting reads it; nothing here measures or
// compares.
package result
