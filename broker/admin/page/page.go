// Package page is the broker's page in a browser: the kit of gloom/broker/page with the views
// in this folder, which get all data from /v1.
package page

import (
	"embed"

	"gloom/broker/page"
)

//go:embed *.js view
var views embed.FS

// Site is the broker's page.
var Site = page.New(page.Daemon{
	Title: "Gloom", Noun: "broker", Views: views,
	NoScript: "<code>gloom status</code>, <code>gloom top</code> and <code>gloom jobs</code> show the same on a terminal.",
})
