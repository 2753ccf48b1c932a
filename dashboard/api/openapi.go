package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forge-scheduler/forge/dashboard/cluster"
	"github.com/forge-scheduler/forge/dashboard/openapi"
	"github.com/forge-scheduler/forge/dashboard/route"
	"github.com/forge-scheduler/forge/dashboard/web"
	"github.com/forge-scheduler/forge/internal/alerts"
	"github.com/forge-scheduler/forge/internal/config"
	"github.com/forge-scheduler/forge/internal/jobstore"
	"github.com/forge-scheduler/forge/leaderstore"
)

// describeOnce builds the document on the first request for it. The routes do not change
// afterwards.
func (s *API) describeOnce() (document func() (openapi.Document, error), text func() ([]byte, error)) {
	document = sync.OnceValues(func() (openapi.Document, error) {
		return openapi.Describer{Version: s.Self.Version, Tokens: s.Tokens != nil, Fields: ownFields, Names: ownNames}.Describe(s.Routes())
	})
	text = sync.OnceValues(func() ([]byte, error) {
		doc, err := document()
		if err != nil {
			return nil, err
		}
		return json.Marshal(doc)
	})
	return document, text
}

func (s *API) apiOpenAPI(w http.ResponseWriter, r *http.Request) {
	text, err := s.DocumentText()
	if err != nil {
		s.AnswerUndescribed(w, r, err)
		return
	}
	w.Header().Set("Content-Type", web.JSONMedia)
	_, _ = w.Write(text) // the client is gone
}

// ownNames are the names of types that clients know by their earlier packages.
var ownNames = map[reflect.Type]string{
	reflect.TypeFor[alerts.Facts]():         "NotifyqueueFacts",
	reflect.TypeFor[alerts.Incident]():      "AlertIncident",
	reflect.TypeFor[alerts.IncidentFacts](): "NotifyIncident",
	reflect.TypeFor[alerts.Notification]():  "NotifyqueueNotification",
	reflect.TypeFor[alerts.Problem]():       "AlertProblem",
	reflect.TypeFor[alerts.Silence]():       "AlertSilence",
	reflect.TypeFor[alerts.Status]():        "AlertStatus",
	reflect.TypeFor[jobstore.Queue]():       "Queue",
	reflect.TypeFor[jobstore.Usage]():       "QueueUsage",
}

// ownFields are the schemas of fields that the Go types do not fully describe.
var ownFields = map[reflect.Type]map[string]*jsonschema.Schema{
	reflect.TypeFor[enqueueAsk]():         {"priority": route.Bounded("", "", 4, 0).Schema()},
	reflect.TypeFor[backfillAsk]():        {"limit": route.Bounded("", "", cluster.MaxBackfill, cluster.DefaultBackfill).Schema()},
	reflect.TypeFor[leaderstore.Tenure](): {"gap_ms": {Type: "number"}},
	reflect.TypeFor[config.FieldChange](): {"from": configValue("in force"), "to": configValue("in the file")},
}

// configValue is the schema of a configuration value of any type. A list of all types would
// be equivalent, but client generators do not support it.
func configValue(where string) *jsonschema.Schema {
	return &jsonschema.Schema{Description: "The value " + where + ", of any type; null if the key is missing."}
}
