package page_test

import (
	"testing"

	"gloom/broker/admin/page"
	"gloom/broker/page/pagetest"
)

func TestSiteOfPageIsValid(t *testing.T) { pagetest.CheckSite(t, page.Site) }
