package metrics

// table holds every metric of podcount itself, in the order of /metrics. docs/run/monitoring.md shows them: `go test
// ./internal/view/metrics -update` writes its table. Names without podcount_ are those that client-go and Prometheus'
// own clients use, so that dashboards for these fit podcount, too.
var table = []Metric{
	{"podcount_pods", Gauge, nil, "Pods that match the selectors."},
	{"podcount_cache_objects", Gauge, []string{"kind"}, "Objects in the cache, by kind."},
	{"podcount_cache_synced", Gauge, []string{"kind"}, "1 if the first list of this kind is complete, else 0."},
	{"podcount_watch_age_seconds", Gauge, []string{"kind"},
		"Time since the API server last sent a list, an event or a bookmark of this kind."},
	{"podcount_watch_events_total", Counter, []string{"kind", "type"},
		"Watch events that were received, including bookmarks."},
	{"podcount_relists_total", Counter, []string{"kind", "reason"}, "Complete lists, by the reason for listing."},
	{"podcount_audits_total", Counter, []string{"kind", "result"},
		"Audits of the cache: clean, drift (the cache differed from the API server), " +
			"skipped (the API server could not list the cache's version) or failed."},
	{"podcount_cache_drift_total", Counter, []string{"kind"},
		"Objects in which an audit found the cache to differ from the API server."},
	{"podcount_label_patches_total", Counter, []string{"result"},
		"Patches of node labels: written, failed, " +
			"stripped (the answer lacks the label) or gone (the node no longer exists)."},
	{"podcount_status_patches_total", Counter, []string{"result"},
		"Patches of the status of Counts: written, failed, " +
			"stripped (the answer lacks the status) or gone (the Count no longer exists)."},
	{"podcount_events_total", Counter, []string{"result"}, "Kubernetes Events: posted or dropped."},
	{"podcount_lines_dropped_total", Counter, []string{"stream"},
		"Lines for stderr or stdout that were dropped because nobody read them in time."},
	{"podcount_build_info", Gauge, []string{"version", "goversion"}, "Always 1; the labels show what is running."},
	{"workqueue_depth", Gauge, []string{"name"}, "Keys that wait for a worker."},
	{"workqueue_adds_total", Counter, []string{"name"}, "Keys that were queued for a worker."},
	{"workqueue_retries_total", Counter, []string{"name"}, "Keys that were queued again because they failed."},
	{"workqueue_queue_duration_seconds", Histogram, []string{"name"}, "Time that a key waited for a worker."},
	{"workqueue_work_duration_seconds", Histogram, []string{"name"}, "Time that a worker took for a key."},
	{"workqueue_unfinished_work_seconds", Gauge, []string{"name"},
		"Time that all workers together have spent on the keys that they work on now."},
	{"workqueue_longest_running_processor_seconds", Gauge, []string{"name"},
		"The longest time that a worker has spent on the key that it works on now."},
	{"rest_client_requests_total", Counter, []string{"code", "method", "host"}, "Requests to the API server."},
	{"rest_client_request_duration_seconds", Histogram, []string{"verb", "host"},
		"Time from a request to the beginning of the API server's answer."},
	{"leader_election_master_status", Gauge, []string{"name"}, "1 if this replica is the leader, else 0."},
	{"go_goroutines", Gauge, nil, "Goroutines that exist."},
	{"go_memstats_alloc_bytes", Gauge, nil, "Bytes of the objects on the heap."},
	{"go_memstats_alloc_bytes_total", Counter, nil,
		"Bytes of all objects ever allocated on the heap, including freed ones."},
	{"go_memstats_sys_bytes", Gauge, nil, "Bytes of memory that Go obtained from the operating system."},
	{"process_cpu_seconds_total", Counter, nil, "Processor time, in user and kernel mode."},
	{"process_resident_memory_bytes", Gauge, nil, "Memory that is in RAM."},
	{"process_virtual_memory_bytes", Gauge, nil, "Address space that is reserved."},
	{"process_start_time_seconds", Gauge, nil, "When the process started, as Unix time."},
}
