package suite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// At returns the key of an object in the fake API server.
func At(namespace, name string) fakekube.Key { return fakekube.Key{Namespace: namespace, Name: name} }

// IsList matches the lists of a resource that fill a cache. A list with limit=1 only looks up the newest version, so
// IsList does not match it.
func IsList(resource string) func(fakekube.Request) bool {
	isAnyList := fixture.IsList(resource)
	return func(r fakekube.Request) bool { return isAnyList(r) && r.Query.Get("limit") != "1" }
}

// IsWriteOf matches the writes to objects of a resource.
func IsWriteOf(resource string) func(fakekube.Request) bool {
	return func(r fakekube.Request) bool {
		return fixture.IsWrite(r) && strings.Contains(r.Path, "/"+resource+"/")
	}
}

// WritesTo returns every write that f has received, except those of Events.
func WritesTo(f *fakekube.Server) []fakekube.Request {
	return fixture.Requests(f, fixture.IsWrite)
}

// StatusFault is a fault that answers requests with a Status. header alternates between names and values.
func StatusFault(
	on fakekube.Requests, times, code int, reason string, details any, header ...string,
) fakekube.Fault {
	body, _ := json.Marshal(fakekube.Status(code, reason, "as scripted", details))
	fields := map[string]string{}
	for field := range slices.Chunk(header, 2) {
		fields[field[0]] = field[1]
	}
	return fakekube.Fault{
		On:    on,
		Times: times,
		Do:    fakekube.Reply{Code: code, Header: fields, Body: string(body)},
	}
}

// MeetFaults lets time pass until every fault that was injected has been met, but at most six hours.
func MeetFaults(t *testing.T, f *fakekube.Server) {
	t.Helper()
	start := time.Now()
	for f.FaultsLeft() && time.Since(start) < 6*time.Hour {
		testkit.Pass(time.Second)
	}
}

// EventsOf returns the Events with a reason, sorted. Each is a text such as "Pod/web in default: pod count is 3 x1":
// the object, the namespace of the Event, its message and how often it was posted.
func EventsOf(f *fakekube.Server, reason string) (found []string) {
	for _, e := range f.All("events") {
		if fakekube.TextIn(e, "reason") != reason {
			continue
		}
		involved := e["involvedObject"].(fakekube.Object)
		found = append(found, fmt.Sprintf("%s/%s in %s: %s x%v",
			fakekube.TextIn(involved, "kind"),
			fakekube.TextIn(involved, "name"),
			fakekube.TextIn(fakekube.MetaOf(e), "namespace"),
			fakekube.TextIn(e, "message"),
			e["count"],
		))
	}
	slices.Sort(found)
	return found
}
