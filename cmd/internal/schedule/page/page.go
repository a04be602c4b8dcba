// Package page has the view of schedules, for the pages of the daemons that have schedules.
package page

import "embed"

// Views holds the files of the view.
//
//go:embed *.js
var Views embed.FS
