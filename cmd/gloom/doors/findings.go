package doors

import (
	"net/http"

	"gloom/broker/admin/api"
)

// findings returns the findings of the daemon, about one subject or about all. What the daemon
// calls a name or a target is a type.
func (d *Door) findings(r *http.Request) (any, error) {
	var list api.List[api.Finding]
	err := d.request(r, http.MethodGet, "/v1/findings", nil, &list)
	out, subject := api.Findings{Items: []api.Finding{}}, r.URL.Query().Get("subject")
	for _, f := range list.Items {
		if subject != "" && subject != f.Subject {
			continue
		}
		if f.Kind == "target" || f.Kind == "name" {
			f.Kind = "type"
		}
		out.Items = append(out.Items, f)
		switch f.Severity {
		case api.Severe:
			out.Counts.Severe++
		case api.Warning:
			out.Counts.Warning++
		default:
			out.Counts.Info++
		}
	}
	return &out, err
}
