// Package page is the web page for operators of a jobd fleet: the kit of gloom/broker/page with the
// views in this directory, which get all data from jobd-master's /v1.
package page

import (
	"embed"

	"gloom/broker/page"
)

//go:embed *.js view
var views embed.FS

// Site is the page of jobd-master.
var Site = page.New(page.Daemon{
	Title: "jobd", Noun: "master", Views: views,
	NoScript: "<code>GET /v1/stats</code> and <code>jobctl --master list-workers</code> have the same data.",
})
