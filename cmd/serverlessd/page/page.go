// Package page serves the page that operators see in a browser: the kit of gloom/broker/page with
// the views here, which get everything from the API.
package page

import (
	"embed"

	"gloom/broker/page"
	schedule "gloom/cmd/internal/schedule/page"
)

//go:embed *.js view
var views embed.FS

// Site is the page of serverlessd.
var Site = page.New(page.Daemon{
	Title: "Serverless", Noun: "daemon", Views: views, Shared: schedule.Views,
	Without: "<code>GET /v1/stats</code> and <code>/jobs</code> show the same.",
})
