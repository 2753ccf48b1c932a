package metrics

var passResults = []string{"complete", "incomplete"}

func (m *Metrics) addCompactor(f *factory) {
	m.CompactorPasses = f.counterVec("forge_compactor_passes_total", "Passes of the log compactor's leader, by result: incomplete when a part of it failed.", "result")
	m.CompactorRemoved = f.counterVec("forge_compactor_removed_rows_total", "Rows that retention deleted, by what they were.", "of")
	m.CompactorChunks = f.counter("forge_compactor_merged_chunks_total", "Chunks of output that were merged.")
	m.CompactorTextBytes = f.counter("forge_compactor_merged_bytes_total", "Bytes of text in them.")
	m.CompactorPackBytes = f.counter("forge_compactor_packed_bytes_total", "Bytes that they take merged and compressed.")
	m.CompactorPassSeconds = f.histogramVec("forge_compactor_pass_duration_seconds", "Seconds that a pass took, its pauses included.")
	m.CompactorPassedAt = f.gaugeVec("forge_compactor_last_pass_timestamp_seconds", "When this node, as the log compactor's leader, ended its last pass, in Unix time; no series on the other nodes.")
	m.TableBytes = f.gaugeVec("forge_table_bytes", "Size of a table with its indexes, as the log compactor's leader found it in its last pass; no series on the other nodes.", "table")
	for _, result := range passResults {
		m.CompactorPasses.WithLabelValues(result)
	}
}

// InitCompactor starts the counters of what retention deletes at 0.
func (m *Metrics) InitCompactor(of []string) {
	for _, what := range of {
		m.CompactorRemoved.WithLabelValues(what)
	}
}
