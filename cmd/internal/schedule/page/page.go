// Package page has the view of schedules, for the pages of the daemons that have them.
package page

import "embed"

// Views has its files.
//
//go:embed *.js
var Views embed.FS
