package observe

import (
	"time"

	"podcount/internal/view/logging"
)

// CacheState is the state of a cache, for people.
type CacheState struct {
	Objects         int
	IsReady         bool
	IsSynced        bool // the first list is complete
	IsAbsent        bool // the resource is not installed
	IsUnknown       bool // it is not known whether the resource is installed
	ResourceVersion string
	LastHeard       time.Time        // when the server last sent a list or an event; zero if it never has, or IsAbsent
	LastWatch       *WatchRecord     // nil before a watch has ended
	Problem         *logging.Problem // why lists, watches or discovery fail now; nil if they work
	Counts          *CacheCounts
}

// WatchRecord says how a watch has ended.
type WatchRecord struct {
	At      time.Time
	Outcome string // one word
	Meaning string // one or two sentences
	Err     error  // io.EOF if the server ended the stream between two events

	Problem   string // what has failed, as a message of the log; "" if nothing has
	Version   string // at which the watch has ended
	Took      time.Duration
	IsListDue bool
}
