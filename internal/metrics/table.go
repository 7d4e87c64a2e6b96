package metrics

// table is every metric of podcount itself, in the order of /metrics. README.md shows the same: a test compares the
// two. The names without podcount_ are those of client-go and of Prometheus' own clients, so that dashboards fit.
var table = []Metric{
	{
		Name: "podcount_pods",
		Type: Gauge,
		Help: "Pods that are counted, under the selectors given.",
	},
	{
		Name:   "podcount_cache_objects",
		Type:   Gauge,
		Labels: []string{"kind"},
		Help:   "Objects in the cache.",
	},
	{
		Name:   "podcount_watch_age_seconds",
		Type:   Gauge,
		Labels: []string{"kind"},
		Help:   "Time since the server was last heard of it: by a list, an event or a bookmark.",
	},
	{
		Name:   "podcount_watch_events_total",
		Type:   Counter,
		Labels: []string{"kind", "type"},
		Help:   "Watch events, bookmarks too.",
	},
	{
		Name:   "podcount_relists_total",
		Type:   Counter,
		Labels: []string{"kind", "reason"},
		Help:   "Complete lists, by what made them due.",
	},
	{
		Name:   "podcount_label_patches_total",
		Type:   Counter,
		Labels: []string{"result"},
		Help:   "Patches of nodes: written, failed, stripped (the answer lacks our label), or gone (nothing was there).",
	},
	{
		Name:   "podcount_status_patches_total",
		Type:   Counter,
		Labels: []string{"result"},
		Help:   "The same of Counts.",
	},
	{
		Name:   "podcount_events_total",
		Type:   Counter,
		Labels: []string{"result"},
		Help:   "Events: posted or dropped.",
	},
	{
		Name:   "podcount_lines_dropped_total",
		Type:   Counter,
		Labels: []string{"stream"},
		Help:   "Lines for stderr or stdout that were dropped, as nobody read them in time.",
	},
	{
		Name:   "podcount_build_info",
		Type:   Gauge,
		Labels: []string{"version", "goversion"},
		Help:   "What is running.",
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
		Help:   "Keys that began to wait for one.",
	},
	{
		Name:   "workqueue_retries_total",
		Type:   Counter,
		Labels: []string{"name"},
		Help:   "Keys that failed and are tried again.",
	},
	{
		Name:   "workqueue_queue_duration_seconds",
		Type:   Histogram,
		Labels: []string{"name"},
		Help:   "How long a key waited for a worker.",
	},
	{
		Name:   "workqueue_work_duration_seconds",
		Type:   Histogram,
		Labels: []string{"name"},
		Help:   "How long a worker had it.",
	},
	{
		Name:   "workqueue_unfinished_work_seconds",
		Type:   Gauge,
		Labels: []string{"name"},
		Help:   "How long workers have had what they have, all together.",
	},
	{
		Name:   "workqueue_longest_running_processor_seconds",
		Type:   Gauge,
		Labels: []string{"name"},
		Help:   "How long the slowest of them has had it.",
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
		Help:   "The time until its answer began.",
	},
	{
		Name:   "leader_election_master_status",
		Type:   Gauge,
		Labels: []string{"name"},
		Help:   "1 while this replica leads.",
	},
	{
		Name: "go_goroutines",
		Type: Gauge,
		Help: "Goroutines.",
	},
	{
		Name: "go_memstats_alloc_bytes",
		Type: Gauge,
		Help: "Bytes of objects in the heap.",
	},
	{
		Name: "go_memstats_alloc_bytes_total",
		Type: Counter,
		Help: "Bytes of all objects ever.",
	},
	{
		Name: "go_memstats_sys_bytes",
		Type: Gauge,
		Help: "Bytes obtained from the system.",
	},
	{
		Name: "process_cpu_seconds_total",
		Type: Counter,
		Help: "Processor time, of user and system.",
	},
	{
		Name: "process_resident_memory_bytes",
		Type: Gauge,
		Help: "Memory in use.",
	},
	{
		Name: "process_virtual_memory_bytes",
		Type: Gauge,
		Help: "Address space.",
	},
	{
		Name: "process_start_time_seconds",
		Type: Gauge,
		Help: "When it was started, in Unix time.",
	},
}
