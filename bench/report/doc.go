// Package report turns result files into tables, plots and Go's benchmark format. It reads only
// result files, so that every figure can be traced to a result file.
package report
