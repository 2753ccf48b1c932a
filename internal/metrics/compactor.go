package metrics

var passResults = []string{"complete", "incomplete"}

func (m *Metrics) addCompactor(f *factory) {
	m.CompactorPasses = f.counterVec("forge_compactor_passes_total", "Passes of the log compactor's leader, by result: complete, or incomplete if a part of the pass failed.", "result")
	m.CompactorRemoved = f.counterVec("forge_compactor_removed_rows_total", "Rows that retention deleted, by what they recorded.", "of")
	m.CompactorChunks = f.counter("forge_compactor_merged_chunks_total", "Chunks of job output that the log compactor merged.")
	m.CompactorTextBytes = f.counter("forge_compactor_merged_bytes_total", "Bytes of text in the merged chunks, before compression.")
	m.CompactorPackBytes = f.counter("forge_compactor_packed_bytes_total", "Bytes of the merged chunks after compression.")
	m.CompactorPassSeconds = f.histogramVec("forge_compactor_pass_duration_seconds", "Seconds that a pass took, its pauses included.")
	m.CompactorPassedAt = f.gaugeVec("forge_compactor_last_pass_timestamp_seconds", "When the log compactor's leader ended its last pass, in Unix time; no series on other nodes.")
	m.TableBytes = f.gaugeVec("forge_table_bytes", "Size of a table with its indexes, as measured in the last pass of the log compactor's leader; no series on other nodes.", "table")
	for _, result := range passResults {
		m.CompactorPasses.WithLabelValues(result)
	}
}

// InitCompactor starts the counters of deleted rows at 0.
func (m *Metrics) InitCompactor(of []string) {
	for _, what := range of {
		m.CompactorRemoved.WithLabelValues(what)
	}
}
