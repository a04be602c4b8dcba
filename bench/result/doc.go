// Package result is what a bench run leaves behind: a JSON file with the world
// it ran in and every round's raw figures. Measuring writes it, reporting reads
// it; nothing here measures or judges.
package result
