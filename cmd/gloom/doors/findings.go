package doors

import (
	"net/http"

	"gloom/broker/admin/api"
)

// found collects what is found about one subject, or about all.
type found struct {
	api.Findings
	subject string
}

func (d *Door) found(r *http.Request) *found {
	return &found{api.Findings{Items: []api.Finding{}}, r.URL.Query().Get("subject")}
}

func (f *found) add(severity, kind, subject, cause, finding, advice string) {
	f.tell(api.Finding{Severity: severity, Kind: kind, Subject: subject, Cause: cause, Finding: finding, Advice: advice})
}

func (f *found) tell(x api.Finding) {
	if f.subject != "" && f.subject != x.Subject {
		return
	}
	f.Items = append(f.Items, x)
	switch x.Severity {
	case api.Severe:
		f.Counts.Severe++
	case api.Warning:
		f.Counts.Warning++
	default:
		f.Counts.Info++
	}
}
