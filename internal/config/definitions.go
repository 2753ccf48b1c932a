package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Definitions returns a digest of what each job is, by its name, from the
// cluster's sections as ClusterSections returns them or as the database gives
// them back. Two nodes whose digests of a job agree run the same thing.
func Definitions(sections []byte) (map[string]string, error) {
	jobs, err := Section(sections, "jobs")
	if err != nil {
		return nil, err
	}
	digests := make(map[string]string, len(jobs))
	for name, job := range jobs {
		if table, ok := job.(map[string]any); ok {
			delete(table, "global_limit") // how many run is the cluster's business, not the node's
			delete(table, "limit_per_key")
			delete(table, "max_workers_per_key")
			delete(table, "rate_limit")
			delete(table, "weight")
			delete(table, "unique") // as is which are added
			delete(table, "schema")
			if table["kind"] == KindGo {
				continue // a program defines it
			}
		}
		body, err := json.Marshal(job)
		if err != nil {
			return nil, fmt.Errorf("encode job %s: %w", name, err)
		}
		sum := sha256.Sum256(body)
		digests[name] = hex.EncodeToString(sum[:8])
	}
	return digests, nil
}

// Fairness is how the waiting jobs of a queue take turns.
type Fairness struct {
	By      string         `json:"fair_by"`
	Weights map[string]int `json:"fair_weights"`
}

// FairQueues returns the queues whose jobs take turns, by name, from sections as for Definitions.
// It ignores keys that another version may have stored.
func FairQueues(sections []byte) (map[string]Fairness, error) {
	queues, err := Section(sections, "queues")
	if err != nil {
		return nil, err
	}
	fair := map[string]Fairness{}
	for name, queue := range queues {
		body, err := json.Marshal(queue)
		if err != nil {
			return nil, fmt.Errorf("encode queue %s: %w", name, err)
		}
		var of Fairness
		if err := json.Unmarshal(body, &of); err != nil {
			return nil, fmt.Errorf("decode the fairness of queue %s: %w", name, err)
		}
		if of.By != "" {
			fair[name] = of
		}
	}
	return fair, nil
}

// Section reads one of the cluster's sections as a table of tables by name.
func Section(sections []byte, name string) (map[string]any, error) {
	all, err := decodeSections(sections)
	if err != nil {
		return nil, err
	}
	return byName(all[name]), nil
}

func decodeSections(sections []byte) (map[string]any, error) {
	all := map[string]any{}
	if len(sections) == 0 {
		return all, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(sections))
	decoder.UseNumber() // a number comes back as it was written
	if err := decoder.Decode(&all); err != nil {
		return nil, fmt.Errorf("decode the cluster's sections: %w", err)
	}
	return all, nil
}

// byName turns a list of tables that have a name into a table of them.
func byName(value any) map[string]any {
	list, isList := value.([]any)
	if !isList {
		table, _ := value.(map[string]any)
		return table
	}
	named := make(map[string]any, len(list))
	for _, item := range list {
		if table, ok := item.(map[string]any); ok {
			if name, ok := table["name"].(string); ok {
				named[name] = table
			}
		}
	}
	return named
}
