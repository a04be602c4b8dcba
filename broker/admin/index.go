package admin

import (
	"net/http"
	"time"

	"github.com/goccy/go-json"

	"gloom/broker/admin/api"
	web "gloom/broker/admin/page"
)

// initialData is the data that the page's document contains, so that the page is drawn without further
// requests. If a token is needed, the data says only that.
type initialData struct {
	Guarded bool            `json:"guarded,omitempty"`
	UnixMS  int64           `json:"unix_ms,omitempty"`
	Status  *api.Status     `json:"status,omitempty"`
	Look    json.RawMessage `json:"look,omitempty"`
	History any             `json:"history,omitempty"` // in the form in which doors answer GET /v1/moments
}

func (a *API) getPage(w http.ResponseWriter, r *http.Request) {
	data := initialData{Guarded: a.srv.Options().TokenFile != ""}
	if !data.Guarded {
		s := a.apiStatus(nil)
		data.UnixMS, data.Status, data.History = time.Now().UnixMilli(), &s, api.List[api.Moment]{Items: a.recentMoments()}
		a.withSnapshot(func(snap *snapshot) { data.Look = a.encodeSnapshot(snap) })
	}
	text, err := json.Marshal(&data) // Marshal writes < and & as \u003c and \u0026
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	web.Site.Index(w, r, text)
}
