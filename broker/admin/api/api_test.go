package api_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"gloom/broker/admin/api"
)

// TestSchemasMatchTypes: each schema of the document has a type in this package with the same
// keys, and the same keys are optional in both.
func TestSchemasMatchTypes(t *testing.T) {
	types := map[string]any{
		"Error": api.Error{}, "Ledger": api.Ledger{}, "Limits": api.Limits{}, "Type": api.Type{},
		"Peer": api.Peer{}, "Job": api.Job{}, "Run": api.Run{}, "State": api.State{}, "DeadJob": api.DeadJob{},
		"Worker": api.Worker{}, "Submitter": api.Submitter{}, "Status": api.Status{},
		"Draining": api.Draining{}, "Change": api.Change{},
		"Fair": api.Fair{}, "RuleLimits": api.RuleLimits{}, "Rule": api.Rule{}, "Group": api.Group{},
		"Groups": api.Groups{}, "HeldBy": api.HeldBy{}, "Empty": struct{}{},
		"TypeList": api.TypeList{}, "Rates": api.Rates{}, "Look": api.Look{}, "Moment": api.Moment{}, "Link": api.Link{}, "WorkerList": api.List[api.Worker]{},
		"SubmitterList": api.List[api.Submitter]{}, "DeadJobList": api.List[api.DeadJob]{},
		"JobList": api.List[api.Job]{}, "Ended": api.Ended{}, "History": api.History{}, "EndedList": api.EndedList{}, "Demand": api.Demand{}, "JobFilter": api.JobFilter{},
		"DeadFilter": api.DeadFilter{}, "Many": api.Many{}, "Submission": api.Submission{},
		"Submitted": api.Submitted{},
		"Fleet":     api.Fleet{}, "Forgotten": api.Forgotten{}, "FleetBroker": api.FleetBroker{}, "FleetWant": api.FleetWant{}, "NATS": api.NATS{}, "Finding": api.Finding{}, "Findings": api.Findings{}, "Severities": api.Severities{},
	}
	// Some keys are optional in requests and always present in answers.
	queryNames := map[string]bool{"Limits": true}
	doc, err := openapi3.NewLoader().LoadFromFile("../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	schemas := doc.Components.Schemas
	if want, got := slices.Sorted(maps.Keys(schemas)), slices.Sorted(maps.Keys(types)); !slices.Equal(got, want) {
		t.Errorf("types for the schemas %v, want %v", got, want)
	}
	for name, v := range types {
		s := schemas[name]
		if s == nil {
			continue
		}
		var keys, requiredKeys []string
		for key, optional := range jsonKeys(reflect.TypeOf(v)) {
			keys = append(keys, key)
			if !optional && !queryNames[name] {
				requiredKeys = append(requiredKeys, key)
			}
		}
		slices.Sort(keys)
		slices.Sort(requiredKeys)
		if want := slices.Sorted(maps.Keys(s.Value.Properties)); !slices.Equal(keys, want) {
			t.Errorf("%s has the keys %v, the document says %v", name, keys, want)
		}
		if want := slices.Sorted(slices.Values(s.Value.Required)); !slices.Equal(requiredKeys, want) {
			t.Errorf("%s always has %v, the document says %v", name, requiredKeys, want)
		}
	}
}

// jsonKeys returns the JSON keys of a struct, and whether each is optional.
func jsonKeys(t reflect.Type) map[string]bool {
	out := map[string]bool{}
	for f := range t.Fields() {
		if f.Anonymous {
			of, optional := f.Type, f.Type.Kind() == reflect.Pointer
			if optional {
				of = of.Elem()
			}
			for key, rest := range jsonKeys(of) {
				out[key] = rest || optional
			}
			continue
		}
		if key, rest, _ := strings.Cut(f.Tag.Get("json"), ","); key != "-" {
			out[key] = rest == "omitempty"
		}
	}
	return out
}
