// Package page is podcount's web page: what the program knows and does, for people, in a browser.
package page

import (
	"iter"
	"slices"
	"sort"
	"time"
)

// State is what the page shows of the program's present state. It is JSON for /debug/state and for the page.
type State struct {
	Version   string    `json:"version"`
	Host      string    `json:"host"`   // the name of this replica
	Server    string    `json:"server"` // the URL of the API server; a password in it is hidden
	Started   time.Time `json:"started"`
	UpSeconds float64   `json:"upSeconds"`
	Mode      string    `json:"mode"` // "" or, for example, "dry run"

	Waiting []string `json:"waiting"` // why /readyz does not answer 200
	Stuck   []string `json:"stuck"`   // why /livez does not answer 200

	Labels  []Label  `json:"labels"`            // the total, then the nodes' own numbers; [] if pod-count is off
	Silence *Silence `json:"silence,omitempty"` // nil while the API server answers

	Kinds       []Kind       `json:"kinds"`
	Controllers []Controller `json:"controllers"`
	Lease       *Lease       `json:"lease,omitempty"` // nil without an election
	Writes      Writes       `json:"writes"`
	Events      Events       `json:"events"`

	Nodes      []Crowd `json:"nodes"`      // the ten with the most pods; nil if podcount does not read pods' nodes
	Namespaces []Crowd `json:"namespaces"` // the ten with the most pods
}

// Label is a label that podcount keeps right on some nodes. Of nodes, at most ten are named, sorted.
type Label struct {
	Name              string   `json:"name"`              // such as hopegi/pod-count
	IsOwn             bool     `json:"own"`               // each node shows the number of its own pods
	IsKnown           bool     `json:"known"`             // what is right is known, because the first lists are complete
	Value             string   `json:"value"`             // of all its nodes; "" if IsOwn, with -prune, or not known
	Nodes             []string `json:"nodes"`             // those that should show it
	NodeCount         int      `json:"nodeCount"`         // how many should show it
	Wrong             []string `json:"wrong"`             // those that do not show what they should
	WrongCount        int      `json:"wrongCount"`        // how many do not
	SecondsRight      *float64 `json:"secondsRight"`      // since all nodes are right; nil if one is wrong, or not known
	SecondsSinceWrite *float64 `json:"secondsSinceWrite"` // nil if podcount has not written it since its start
	SecondsOld        *float64 `json:"secondsOld"`        // since podcount hears of pods or nodes no more; nil if it does
}

// Silence says that the API server does not answer.
type Silence struct {
	Seconds         float64 `json:"seconds"`         // since podcount last knew the cluster's state
	SecondsUntilTry float64 `json:"secondsUntilTry"` // until the next request; 0 while one runs
	Error           string  `json:"error"`           // of the last request
	Advice          string  `json:"advice"`          // what to do
}

// Kind is the state of the reflector of one kind.
type Kind struct {
	Name              string         `json:"name"` // such as Pod
	IsReady           bool           `json:"ready"`
	IsAbsent          bool           `json:"absent"`  // the resource is not installed
	IsUnknown         bool           `json:"unknown"` // it is not known whether the resource is installed
	Objects           int            `json:"objects"`
	ResourceVersion   string         `json:"resourceVersion"`
	SecondsSinceHeard *float64       `json:"secondsSinceHeard"`   // nil if the server has never sent anything
	LastWatch         *WatchEnd      `json:"lastWatch,omitempty"` // nil before a watch has ended
	Relists           map[string]int `json:"relists"`             // by reason
	Audits            map[string]int `json:"audits"`              // by result: clean, drift, skipped, failed
	Drift             int            `json:"drift"`               // the objects that audits have corrected
	Problem           string         `json:"problem,omitempty"`   // why lists or watches fail now
	ProblemAdvice     string         `json:"problemAdvice,omitempty"`
}

// WatchEnd says how the last watch of a kind has ended.
type WatchEnd struct {
	At      time.Time `json:"at"`
	Outcome string    `json:"outcome"` // such as expired
	Text    string    `json:"text"`    // for people, with what podcount did then
}

// Controller is the state of one controller's queue.
type Controller struct {
	Name         string       `json:"name"`
	HasBegun     bool         `json:"begun"`
	Waits        string       `json:"waits"`   // what it waits for before it begins; "" if it has begun
	Ready        int          `json:"ready"`   // keys that wait for a worker
	Working      []Work       `json:"working"` // keys that workers have
	Waiting      int          `json:"waiting"` // keys that wait for their time, without a failure
	FailingCount int          `json:"failingCount"`
	Failing      []FailingKey `json:"failing"` // those that fail for longest, at most 20
}

// Work is a key that a worker has.
type Work struct {
	Key     string  `json:"key"`
	Seconds float64 `json:"seconds"`
}

// FailingKey is a key whose last reconcile has failed.
type FailingKey struct {
	Key      string    `json:"key"`
	Since    time.Time `json:"since"`    // of the first failure in a row
	Failures int       `json:"failures"` // in a row
	Error    string    `json:"error"`
	Advice   string    `json:"advice"` // what to do
	RetryAt  time.Time `json:"retryAt"`
}

// Lease is the state of the election.
type Lease struct {
	Name     string `json:"name"` // NAMESPACE/NAME
	Identity string `json:"identity"`
	IsOurs   bool   `json:"ours"`
	Holder   string `json:"holder"`            // "" if nobody holds it
	IsKnown  bool   `json:"known"`             // the Lease was read; before that, Holder is ""
	Problem  string `json:"problem,omitempty"` // why requests about the Lease fail now
	Advice   string `json:"advice,omitempty"`
}

// Writes counts the patches by their outcome, since the start.
type Writes struct {
	Written  int `json:"written"`
	Failed   int `json:"failed"`
	Stripped int `json:"stripped"` // accepted by the server, which dropped what was written
	Gone     int `json:"gone"`     // the object was deleted meanwhile
}

// Events counts the Events since the start.
type Events struct {
	Posted  int `json:"posted"`
	Dropped int `json:"dropped"`
	Waiting int `json:"waiting"`
}

// Crowd is a node or a namespace with its number of pods.
type Crowd struct {
	Name string `json:"name"`
	Pods int    `json:"pods"`
}

// Sample is one second of the lines of the last ten minutes.
type Sample struct {
	At     time.Time `json:"at"`
	Pods   int       `json:"pods"`   // in the cache; -1 before the first list
	Events int       `json:"events"` // of watches, within this second
	Writes int       `json:"writes"` // patches that were written, within this second
}

// mostCrowded is how many nodes and namespaces the page shows.
const mostCrowded = 10

// MostCrowded returns the ten names with the most pods, the largest number first. It returns nil if pods is nil.
func MostCrowded(pods iter.Seq2[string, int]) []Crowd {
	if pods == nil {
		return nil
	}
	top := []Crowd{}
	for name, count := range pods {
		at := sort.Search(len(top), func(i int) bool {
			return count > top[i].Pods || count == top[i].Pods && name < top[i].Name
		})
		if at < mostCrowded {
			top = slices.Insert(top[:min(len(top), mostCrowded-1)], at, Crowd{Name: name, Pods: count})
		}
	}
	return top
}
