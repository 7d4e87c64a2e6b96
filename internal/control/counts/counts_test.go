package counts

import (
	"testing"

	"podcount/internal/api/object"
	"podcount/internal/api/objectmeta"
	"podcount/lab/testkit"
)

// newView returns a Count that wants two pods.
func newView(t *testing.T) View {
	metadata, err := objectmeta.NewPacker(nil).Pack(objectmeta.Fields{Name: []byte("web"), UID: []byte("u")})
	if err != nil {
		t.Fatal(err)
	}
	count := &object.Count{CountSpec: object.CountSpec{App: "web", Want: 2}, Generation: 3}
	count.Metadata = metadata.Keep()
	return View{Count: count, HasSubresource: true}
}

func TestStatusSaysWhetherThereAreAsManyPodsAsWanted(t *testing.T) {
	web := newView(t)
	invalid := newView(t)
	invalid.CountSpec = object.CountSpec{Invalid: "no app"}
	invalid.Status = object.CountStatus{Healthy: "true", Count: "2", ObservedGeneration: "2"}
	ordinaryField := newView(t)
	ordinaryField.HasSubresource = false
	for _, row := range []struct {
		name string
		view View
		want object.CountStatus
	}{
		{"enough", web, object.CountStatus{Healthy: "true", Count: "2", ObservedGeneration: "3"}},
		{"no subresource", ordinaryField, object.CountStatus{Healthy: "true", Count: "2"}},
		{"an invalid spec", invalid, object.CountStatus{Healthy: "false", Count: "2", ObservedGeneration: "2"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			testkit.WantEqual(t, "the status", row.view.RightStatus(2), row.want)
		})
	}
	testkit.WantEqual(t, "the status without enough pods", web.RightStatus(1).Text(), "1 unhealthy")
}

func TestEventsTellWhatIsNew(t *testing.T) {
	synced := Event{"Normal", "Synced", "Count synced successfully"}
	mismatch := Event{"Warning", "CountMismatch", "want 2 pods of web, have 1"}
	matched := Event{"Normal", "CountMatched", "want 2 pods of web, have 2"}
	web := newView(t)
	few, enough := web.ReportOf(web.RightStatus(1)), web.ReportOf(web.RightStatus(2))
	written := newView(t)
	written.Status = web.RightStatus(1)
	changed := newView(t)
	changed.Status = written.Status
	changed.Generation++
	for _, row := range []struct {
		name          string
		before, after Report
		want          []Event
	}{
		{"a new Count", web.ReportBefore(), few, []Event{synced, mismatch}},
		{"the same", few, few, nil},
		{"enough pods", few, enough, []Event{matched}},
		{"another process has written the status", written.ReportBefore(), few, nil},
		{"another spec", changed.ReportBefore(), changed.ReportOf(changed.RightStatus(2)), []Event{synced, matched}},
	} {
		t.Run(row.name, func(t *testing.T) {
			testkit.WantEqual(t, "the Events", row.after.EventsAfter(row.before), row.want)
		})
	}
}
