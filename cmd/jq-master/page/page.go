// Package page is the web page for operators of a queue. It consists of the shared scripts of
// gloom/broker/page and of the views in this directory, which get all their data from /v1.
package page

import (
	"embed"

	"gloom/broker/page"
	schedule "gloom/cmd/internal/schedule/page"
)

//go:embed *.js view
var views embed.FS

// Site is the page of jq-master.
var Site = page.New(page.Daemon{
	Title: "JQ", Noun: "master", Views: views, Shared: schedule.Views,
	NoScript: "<code>GET /v1/stats</code> and <code>/v1/jobs</code> have the same data.",
})
