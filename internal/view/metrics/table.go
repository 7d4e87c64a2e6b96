package metrics

// table holds every metric of podcount itself, in the order of /metrics. docs/operating.md shows the same: a test
// compares the two. Names without podcount_ are those that client-go and Prometheus' own clients use, so that
// dashboards for these fit podcount, too.
var table = []Metric{
	{
		Name: "podcount_pods",
		Type: Gauge,
		Help: "Pods that match the selectors.",
	},
	{
		Name:   "podcount_cache_objects",
		Type:   Gauge,
		Labels: []string{"kind"},
		Help:   "Objects in the cache, by kind.",
	},
	{
		Name:   "podcount_cache_synced",
		Type:   Gauge,
		Labels: []string{"kind"},
		Help:   "1 if the first list of this kind is complete, else 0.",
	},
	{
		Name:   "podcount_watch_age_seconds",
		Type:   Gauge,
		Labels: []string{"kind"},
		Help:   "Time since the API server last sent a list, an event or a bookmark of this kind.",
	},
	{
		Name:   "podcount_watch_events_total",
		Type:   Counter,
		Labels: []string{"kind", "type"},
		Help:   "Watch events that were received, including bookmarks.",
	},
	{
		Name:   "podcount_relists_total",
		Type:   Counter,
		Labels: []string{"kind", "reason"},
		Help:   "Complete lists, by the reason for listing.",
	},
	{
		Name:   "podcount_audits_total",
		Type:   Counter,
		Labels: []string{"kind", "result"},
		Help: "Audits of the cache: clean, drift (the cache differed from the API server), " +
			"skipped (the API server could not list the cache's version) or failed.",
	},
	{
		Name:   "podcount_cache_drift_total",
		Type:   Counter,
		Labels: []string{"kind"},
		Help:   "Objects in which an audit found the cache to differ from the API server.",
	},
	{
		Name:   "podcount_label_patches_total",
		Type:   Counter,
		Labels: []string{"result"},
		Help: "Patches of node labels: written, failed, " +
			"stripped (the answer lacks the label) or gone (the node no longer exists).",
	},
	{
		Name:   "podcount_status_patches_total",
		Type:   Counter,
		Labels: []string{"result"},
		Help: "Patches of the status of Counts: written, failed, " +
			"stripped (the answer lacks the status) or gone (the Count no longer exists).",
	},
	{
		Name:   "podcount_events_total",
		Type:   Counter,
		Labels: []string{"result"},
		Help:   "Kubernetes Events: posted or dropped.",
	},
	{
		Name:   "podcount_lines_dropped_total",
		Type:   Counter,
		Labels: []string{"stream"},
		Help:   "Lines for stderr or stdout that were dropped because nobody read them in time.",
	},
	{
		Name:   "podcount_build_info",
		Type:   Gauge,
		Labels: []string{"version", "goversion"},
		Help:   "Always 1; the labels show what is running.",
	},
	{
		Name:   "workqueue_depth",
		Type:   Gauge,
		Labels: []string{"name"},
		Help:   "Keys that wait for a worker.",
	},
	{
		Name:   "workqueue_adds_total",
		Type:   Counter,
		Labels: []string{"name"},
		Help:   "Keys that were queued for a worker.",
	},
	{
		Name:   "workqueue_retries_total",
		Type:   Counter,
		Labels: []string{"name"},
		Help:   "Keys that were queued again because they failed.",
	},
	{
		Name:   "workqueue_queue_duration_seconds",
		Type:   Histogram,
		Labels: []string{"name"},
		Help:   "Time that a key waited for a worker.",
	},
	{
		Name:   "workqueue_work_duration_seconds",
		Type:   Histogram,
		Labels: []string{"name"},
		Help:   "Time that a worker took for a key.",
	},
	{
		Name:   "workqueue_unfinished_work_seconds",
		Type:   Gauge,
		Labels: []string{"name"},
		Help:   "Time that all workers together have spent on the keys that they work on now.",
	},
	{
		Name:   "workqueue_longest_running_processor_seconds",
		Type:   Gauge,
		Labels: []string{"name"},
		Help:   "The longest time that a worker has spent on the key that it works on now.",
	},
	{
		Name:   "rest_client_requests_total",
		Type:   Counter,
		Labels: []string{"code", "method", "host"},
		Help:   "Requests to the API server.",
	},
	{
		Name:   "rest_client_request_duration_seconds",
		Type:   Histogram,
		Labels: []string{"verb", "host"},
		Help:   "Time from a request to the beginning of the API server's answer.",
	},
	{
		Name:   "leader_election_master_status",
		Type:   Gauge,
		Labels: []string{"name"},
		Help:   "1 if this replica is the leader, else 0.",
	},
	{
		Name: "go_goroutines",
		Type: Gauge,
		Help: "Goroutines that exist.",
	},
	{
		Name: "go_memstats_alloc_bytes",
		Type: Gauge,
		Help: "Bytes of the objects on the heap.",
	},
	{
		Name: "go_memstats_alloc_bytes_total",
		Type: Counter,
		Help: "Bytes of all objects ever allocated on the heap, including freed ones.",
	},
	{
		Name: "go_memstats_sys_bytes",
		Type: Gauge,
		Help: "Bytes of memory that Go obtained from the operating system.",
	},
	{
		Name: "process_cpu_seconds_total",
		Type: Counter,
		Help: "Processor time, in user and kernel mode.",
	},
	{
		Name: "process_resident_memory_bytes",
		Type: Gauge,
		Help: "Memory that is in RAM.",
	},
	{
		Name: "process_virtual_memory_bytes",
		Type: Gauge,
		Help: "Address space that is reserved.",
	},
	{
		Name: "process_start_time_seconds",
		Type: Gauge,
		Help: "When the process started, as Unix time.",
	},
}
