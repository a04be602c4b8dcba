package page_test

import (
	"testing"

	"gloom/broker/page/pagetest"
	"gloom/cmd/jq-master/page"
)

func TestSite(t *testing.T) { pagetest.CheckSite(t, page.Site) }
