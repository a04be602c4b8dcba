// Package page is what operators see of a fleet of jobd in a browser: the kit of gloom/broker/page,
// with the views here, which ask jobd-master's /v1 for everything.
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
	Without: "<code>GET /v1/stats</code> and <code>jobctl --master list-workers</code> tell the same.",
})
