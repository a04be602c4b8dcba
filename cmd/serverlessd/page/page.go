// Package page is the web page for operators of the daemon. It consists of the shared scripts of
// gloom/broker/page and of the views in this directory, which get all their data from the HTTP API.
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
	NoScript: "<code>GET /v1/stats</code> and <code>/jobs</code> have the same data.",
})
