package suite

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// At is the key of an object in a fake.
func At(namespace, name string) fakekube.Key { return fakekube.Key{Namespace: namespace, Name: name} }

// All matches every request.
func All(fakekube.Request) bool { return true }

// IsList matches the lists of a resource that fill a cache. It leaves out those with limit=1, which only look at what
// the newest version is.
func IsList(resource string) func(fakekube.Request) bool {
	isAnyList := fakekube.IsList(resource)
	return func(r fakekube.Request) bool { return isAnyList(r) && r.Query.Get("limit") != "1" }
}

// IsWriteOf matches the writes to objects of a resource.
func IsWriteOf(resource string) func(fakekube.Request) bool {
	return func(r fakekube.Request) bool {
		return fakekube.IsWrite(r) && strings.Contains(r.Path, "/"+resource+"/")
	}
}

// WritesTo returns every write that f has got, except those of Events.
func WritesTo(f *fakekube.Server) []fakekube.Request { return f.Requests(fakekube.IsWrite) }

// StatusFault answers requests with a Status. header is names and values in turn.
func StatusFault(
	on fakekube.Requests, times, code int, reason string, details any, header ...string,
) fakekube.Fault {
	body, _ := json.Marshal(fakekube.Status(code, reason, "as scripted", details))
	fields := map[string]string{}
	for i := 0; i+1 < len(header); i += 2 {
		fields[header[i]] = header[i+1]
	}
	return fakekube.Fault{
		On:    on,
		Times: times,
		Do:    fakekube.Reply{Code: code, Header: fields, Body: string(body)},
	}
}

// MeetFaults lets time pass, six hours at most, until every fault that was injected has been met.
func MeetFaults(t *testing.T, f *fakekube.Server) {
	t.Helper()
	start := time.Now()
	for f.FaultsLeft() && time.Since(start) < 6*time.Hour {
		testkit.Pass(time.Second)
	}
}

// EventsOf returns the Events with a reason, as sorted texts: the object, the Event's namespace, message and count.
func EventsOf(f *fakekube.Server, reason string) (found []string) {
	for _, e := range f.All("events") {
		if fakekube.TextIn(e, "reason") != reason {
			continue
		}
		about := e["involvedObject"].(fakekube.Object)
		found = append(found, fmt.Sprintf("%s/%s in %s: %s x%v",
			fakekube.TextIn(about, "kind"),
			fakekube.TextIn(about, "name"),
			fakekube.TextIn(fakekube.MetaOf(e), "namespace"),
			fakekube.TextIn(e, "message"),
			e["count"],
		))
	}
	slices.Sort(found)
	return found
}
