// Package page is the view of schedules, for the pages of the daemons that have them.
package page

import "embed"

// Views are its files.
//
//go:embed *.js
var Views embed.FS
