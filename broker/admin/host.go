package admin

import (
	"net/http"

	"gloom/broker/admin/api"
)

// ownHost reports whether the Host of a request is a name or address of this broker.
func (a *API) ownHost(host string) bool {
	opt := a.srv.Options()
	return opt.IsOwnHost(host, opt.HTTPAddr, a.srv.HTTPAddr())
}

func foreignHostError(host string) *api.Error {
	return apiError(http.StatusForbidden, "forbidden_host", "the Host %.200q does not name this broker; use localhost, the address that it listens on, the host's name, or a name in --http-hosts", host)
}
