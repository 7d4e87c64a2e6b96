package object

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"podcount/internal/api/objectmeta"
	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/protobuf"
	"podcount/lab/testkit"
)

func TestVersionsCompareAsDecimalsOfAnyLength(t *testing.T) {
	for _, row := range []struct {
		a, b    string
		isNewer bool
	}{
		{"10", "9", true},
		{"9", "10", false},
		{"10", "10", false},
		{"010", "9", true},
		{"123456789012345678901234567890", "99999999999999999999", true},
		{"5", "", true},
		{"odd", "7", true},
		{"odd", "odd", false},
	} {
		if IsNewer(row.a, row.b) != row.isNewer {
			t.Errorf("IsNewer(%q, %q) is not %v", row.a, row.b, row.isNewer)
		}
	}
}

// podKind returns a kind of pods that keeps the labels with these keys.
func podKind(labels ...string) *Kind[*Pod] {
	kind := PodKind()
	kind.MetadataOnly = false
	kind.Protobuf = false
	kind.Labels = labels
	return &kind
}

// A cluster can have 150,000 pods.
func TestObjectsAreSmall(t *testing.T) {
	testkit.WantNumber(t, "bytes of a Meta", int(reflect.TypeFor[Meta]().Size()), 32)
	testkit.WantNumber(t, "bytes of a Pod", int(reflect.TypeFor[Pod]().Size()), 48)
}

func TestDroppedLabelsTakeNoMemory(t *testing.T) {
	many := fakekube.Object{"app": "x"}
	for i := range 1000 {
		many["other-"+strconv.Itoa(i)] = "y"
	}
	text, _ := json.Marshal(fakekube.Object{
		"metadata": fakekube.Object{"name": "p", "uid": "u", "resourceVersion": "1", "labels": many},
	})
	d := NewDecoder(podKind("app"))
	readPod := func(app string) *Pod {
		p, err := d.Parse(bytes.NewReader(bytes.Replace(text, []byte(`"app":"x"`), []byte(`"app":"`+app+`"`), 1)))
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, "labels", labelsOf(p), map[string]string{"app": app})
		return p
	}
	readPod("first") // This fills the decoder's own buffers.
	const n = 100
	got := testkit.HeapBytes(func() any {
		var pods []*Pod
		for i := range n {
			pods = append(pods, readPod(strconv.Itoa(i)))
		}
		return pods
	})
	testkit.WantBetween(t, "bytes for each pod with one kept label", got/n, -2000, 2000)
}

// encoding/json ignores the case of names, but the API server does not. A Count whose schema allows unknown fields may
// have fields whose names differ only in case.
func TestNamesInJSONAreExact(t *testing.T) {
	kind := CountKind()
	d := NewDecoder(&kind)
	c, err := d.Parse(strings.NewReader(`{
		"metadata": {
			"name": "c", "Name": "x",
			"uid": "u", "UID": "x",
			"resourceVersion": "1", "resourceversion": "x",
			"generation": 3, "GENERATION": 4
		},
		"Metadata": {"name": "y"},
		"spec": {"name": "web", "NAME": "db", "count": 2, "COUNT": 3},
		"SPEC": {"name": "z"},
		"status": {
			"healthy": true, "Healthy": false,
			"count": 2, "cOUNT": 5,
			"observedGeneration": 3, "observedgeneration": 4
		},
		"ſtatuſ": {"count": 7}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Key(), " ", c.UID(), " ", c.ResourceVersion(), " ", c.Generation, c.CountSpec, c.Status)
	testkit.WantEqual(t, "Count", got, "c u 1 3 {web 2 } {true 2 3}")

	c, err = d.Parse(strings.NewReader(`{
		"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
		"spec": {"name": "web", "COUNT": 3}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	const missing = "spec.count is missing, and must be a whole number, 0 or more"
	testkit.WantEqual(t, "Invalid of a Count with only COUNT", c.Invalid, missing)
}

// Nothing but the size of the object limits these values if the schema of a custom resource does not check them.
func TestHugeValuesOfACountAreNotKept(t *testing.T) {
	kind := CountKind()
	huge := strings.Repeat("7", 70_000)
	c, err := NewDecoder(&kind).Parse(strings.NewReader(`{
		"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
		"spec": {"name": "` + huge + `", "count": ` + huge + `, "nodeName": "` + huge + `"},
		"status": {"healthy": ` + huge + `, "count": ` + huge + `, "observedGeneration": ` + huge + `}
	}`))
	testkit.WantError(t, "the Count", err, "")
	testkit.WantEqual(t, "App", c.App, "")
	testkit.WantText(t, c.Invalid, `spec.name is "777`)
	testkit.WantBetween(t, "bytes of Invalid", len(c.Invalid), 1, 200)
	testkit.WantEqual(t, "Status", c.Status, CountStatus{})

	c, err = NewDecoder(&kind).Parse(strings.NewReader(`{
		"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
		"spec": {"name": "web", "count": ` + huge + `}
	}`))
	testkit.WantError(t, "the Count with a name", err, "")
	testkit.WantText(t, c.Invalid, `spec.count is 777`)

	type fields struct{ Spec struct{ Count int } }
	anys := JSONKind[fields]("Any", "/apis/example.com/v1", "anys")
	o, err := NewDecoder(&anys).Parse(strings.NewReader(`{
		"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
		"spec": {"count": ` + huge + `}
	}`))
	testkit.WantError(t, "the JSONObject", err, "")
	testkit.WantText(t, o.Invalid, "json: cannot unmarshal number 777")
	testkit.WantBetween(t, "bytes of Invalid", len(o.Invalid), 1, 600)
}

// A server that does not know PartialObjectMetadata sends whole objects in JSON.
func TestFieldsAreNotReadIfMetadataDo(t *testing.T) {
	for isMetadataOnly, want := range map[bool]string{false: "n", true: ""} {
		kind := podKind()
		kind.MetadataOnly = isMetadataOnly
		p, err := NewDecoder(kind).Parse(strings.NewReader(`{
			"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
			"spec": {"nodeName": "n"}
		}`))
		testkit.WantError(t, "the pod", err, "")
		testkit.WantEqual(t, "its NodeName", p.NodeName, want)
	}
}

func TestPodIsNotOnANodeThatCannotExist(t *testing.T) {
	kind := podKind()
	for length, want := range map[int]int{253: 253, 254: 0, 60_000: 0} {
		p, err := NewDecoder(kind).Parse(strings.NewReader(`{
			"metadata": {"name": "p", "uid": "u", "resourceVersion": "1"},
			"spec": {"nodeName": "` + strings.Repeat("n", length) + `"}
		}`))
		testkit.WantError(t, "the pod", err, "")
		testkit.WantNumber(t, "bytes of its NodeName", len(p.NodeName), want)
	}
}

func TestNamesInAJSONListAreExact(t *testing.T) {
	for _, row := range []struct{ list, want string }{
		{`{"Metadata":{"resourceVersion":"5"},"items":[]}`, "not a list"},
		{`{"metadata":{"ResourceVersion":"5"},"items":[]}`, "not a list"},
		{`{"metadata":{"resourceVersion":"5"},"Items":[]}`, "not a list"},
		{`{"metadata":{"resourceVersion":"5"},"items":[{"Metadata":{}}]}`, "has no metadata.name"},
		{`{"metadata":{"resourceVersion":5},"items":[]}`, "item.metadata.resourceVersion"},
		{`{"metadata":{"resourceVersion":"5"},"items":[{"metadata":"no"}]}`, "item.metadata"},
	} {
		_, err := NewDecoder(podKind("app")).List(strings.NewReader(row.list), false, keepNone)
		testkit.WantError(t, row.list, err, row.want)
	}
}

// keepNone is a callback for decoder.list that keeps no
func keepNone(*Pod, objectmeta.Draft) (kept bool, err error) { return false, nil }

func TestFieldsOfAFrameMayComeInAnyOrder(t *testing.T) {
	pod := func(version string) string { return fixture.PodJSON("p", version, "") }
	frames := []string{
		`{"object":` + pod("1") + `,"type":"ADDED"}`,
		`{"type":"MODIFIED","object":` + pod("2") + `}`,
		`{"object": {"metadata":{"resourceVersion":"3"}}, "type" : "BOOKMARK", "Type": "ADDED", "OBJECT": 7}`,
		`{"object":{"code":410,"reason":"Expired","message":"too old"},"type":"ERROR"}`,
	}
	got, err := eventsIn(strings.Join(frames, "\n"))
	testkit.WantError(t, "four frames", err, "")
	want := []string{
		"ADDED ns/p u 1  map[]",
		"MODIFIED ns/p u 2  map[]",
		"BOOKMARK 3",
		"ERROR 410 Expired too old",
	}
	testkit.WantEqual(t, "events", got, want)
}

// eventsIn decodes a watch in JSON, and describes its events.
func eventsIn(watch string) (events []string, err error) {
	recordEvent := func(event WatchEvent[*Pod]) error {
		events = append(events, describeEvent(event))
		return nil
	}
	err = NewDecoder(podKind("app")).Events(strings.NewReader(watch), false, recordEvent)
	return events, err
}

func TestBadFramesAreGarbage(t *testing.T) {
	pod := fixture.PodJSON("p", "1", "")
	for _, frame := range []string{
		`{"Type":"ADDED","object":` + pod + `}`,
		`{"type":"ADDED","Object":` + pod + `}`,
		`{"type":"ADDED","object":7}`,
		`{"type":"BOOKMARK","object":{"metadata":{}}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3\u0000"}}}`,
		`{"type":"REMOVED","object":` + pod + `}`,
		`[]`,
		`{"type":"ADDED"`,
	} {
		events, err := eventsIn(frame)
		if !errors.As(err, new(wire.GarbageError)) || len(events) > 0 {
			t.Errorf("%s: got the error %v and the events %q, want a GarbageError and none", frame, err, events)
		}
	}
}

func TestLabelsThatTheKindDoesNotKeepAreDropped(t *testing.T) {
	d := NewDecoder(podKind("app", "run", ""))
	for _, row := range []struct{ labels, want string }{
		{`"app":"web","z":"1"`, "map[app:web]"},
		{`"app":"web"`, "map[app:web]"},
		{`"run":"d","app":""`, "map[app: run:d]"},
		{`"":"x"`, "map[:x]"},
		{`"z":"1"`, "map[]"},
		{``, "map[]"},
	} {
		p, err := d.Parse(strings.NewReader(fixture.PodJSON("a", "7", row.labels)))
		testkit.WantError(t, row.labels, err, "")
		testkit.WantEqual(t, "pod with "+row.labels, describe(p), "ns/a u 7  "+row.want)
	}
}

// describe returns everything that is known of a pod: key, uid, version, node and labels.
func describe(p *Pod) string {
	return fmt.Sprintf("%s %s %s %s %v", p.Key(), p.UID(), p.ResourceVersion(), p.NodeName, labelsOf(p))
}

// labelsOf returns the labels of a pod that these tests look at.
func labelsOf(p *Pod) map[string]string {
	all := map[string]string{}
	for _, key := range []string{"app", "run", "tier", ""} {
		if value, ok := p.Label(key); ok {
			all[key] = value
		}
	}
	return all
}

// No API server sends labels twice, but the fuzz tests do.
func TestLabelsTwiceInJSONAreReadAsByEncodingJSON(t *testing.T) {
	d := NewDecoder(podKind("app", "run"))
	for _, labels := range []string{
		`"labels": {"app": "a"}, "labels": null`,
		`"labels": null, "labels": {"app": "a"}`,
		`"labels": {"app": "a"}, "labels": null, "labels": {"run": "r"}`,
		`"labels": {"app": "a"}, "labels": {"app": "b", "run": "r"}`,
		`"labels": {"app": "a", "run": "r"}, "labels": {"app": null}`,
	} {
		metadata := `{"name": "p", "uid": "u", "resourceVersion": "1", ` + labels + `}`
		p, err := d.Parse(strings.NewReader(`{"metadata": ` + metadata + `}`))
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ Labels map[string]string }
		if err := json.Unmarshal([]byte(metadata), &want); err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, labels, fmt.Sprint(labelsOf(p)), fmt.Sprint(want.Labels))
	}
}

func TestObjectWithAZeroByteIsRefused(t *testing.T) {
	d := NewDecoder(podKind("app", "run"))
	pod := fixture.PodJSON("a", "7", `"app":"x","run":"r"`)
	_, err := d.Parse(strings.NewReader(pod))
	testkit.WantError(t, "a pod without a zero byte", err, "")
	for _, part := range []string{`"x"`, `"a"`, `"7"`, `"u"`, `"ns"`} {
		odd := strings.Replace(pod, part, strings.TrimSuffix(part, `"`)+`\u0000y"`, 1)
		_, err := d.Parse(strings.NewReader(odd))
		testkit.WantError(t, odd, err, "a name contains a slash, or a field contains a zero byte")
	}
}

func TestBadListsAreErrorsThatNameThePlace(t *testing.T) {
	const (
		begin = `{"metadata":{"resourceVersion":"5"},"items":`
		item  = `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}`
		after = "after n/a: items: item 1: after byte 118: "
	)
	for _, row := range []struct{ text, want string }{
		{``, "the answer is empty"},
		{`[]`, "begins with ["},
		{`{"items":[` + item + `]}`, "no metadata.resourceVersion"},
		{`{"metadata":{"resourceVersion":"5"}}`, "no items"},
		{begin + `{}}`, "items: this should be a JSON array"},
		{begin + `[` + item, "items: unexpected EOF"},
		{begin + `[` + item + `,{"met`, after + "unexpected EOF"},
		{begin + `[` + item + `,7]}`, after + "json: cannot unmarshal number"},
		{begin + `[` + item + `,{}]}`, `items: item 1: Pod "" has no metadata.name`},
		{
			begin + `[{"metadata":[1]}]}`,
			"items: item 0: after byte 45: json: cannot unmarshal array into Go struct field item.metadata",
		},
		{
			begin + `[{"spec":{"nodeName":7}}]}`,
			"items: item 0: after byte 45: json: cannot unmarshal number into Go struct field item.spec.nodeName",
		},
		{`{"kind":"Status","status":"Failure","message":"strange","code":1}`, "not a list"},
	} {
		_, err := NewDecoder(podKind()).List(strings.NewReader(row.text), false, keepNone)
		testkit.WantError(t, row.text, err, row.want)
	}
}

func TestMetadataMayFollowTheItems(t *testing.T) {
	items := 0
	countItem := func(*Pod, objectmeta.Draft) (kept bool, err error) {
		items++
		return false, nil
	}
	const item = `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}`
	list := `{"kind":"PodList","items":[` + item + `,` + item + `],` +
		`"metadata":{"resourceVersion":"5","continue":"c"}}`
	meta, err := NewDecoder(podKind()).List(strings.NewReader(list), false, countItem)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantNumber(t, "items", items, 2)
	testkit.WantEqual(t, "metadata", meta, wire.ListMeta{ResourceVersion: "5", Continue: "c"})
}

func TestItemsMayBeNull(t *testing.T) {
	list := strings.NewReader(`{"metadata":{"resourceVersion":"5"},"items":null}`)
	_, err := NewDecoder(podKind()).List(list, false, keepNone)
	testkit.WantError(t, "list", err, "")
}

func TestDecoderKeepsNothingOfEarlierLists(t *testing.T) {
	podWithEverything := `{"metadata":{"name":"a-long-name","namespace":"space","uid":"u1","resourceVersion":"1",` +
		`"labels":{"app":"x","tier":"","z":"1"}},"spec":{"nodeName":"n1"}}`
	podWithNullLabels := `{"metadata":{"name":"c","uid":"u3","resourceVersion":"3","labels":null},"spec":{}}`
	lists := []struct {
		text         string
		keepsObjects bool // The decoder reuses objects that are not kept.
		want         []string
	}{
		{
			fixture.PodListJSON(podWithEverything, barePod("b1")),
			true,
			[]string{"space/a-long-name u1 1 n1 map[app:x tier:]", "b1 u2 2  map[]"},
		},
		{
			fixture.PodListJSON(barePod("b2"), podWithNullLabels),
			false,
			[]string{"b2 u2 2  map[]", "c u3 3  map[]"},
		},
	}
	d := NewDecoder(podKind("app", "tier"))
	for formats := range 16 {
		for i := range 4 {
			isProtobuf := formats>>i&1 == 1 // bit i is the format of list i
			list := lists[i%2]
			body := []byte(list.text)
			if isProtobuf {
				body = fakekube.Protobuf(body)
			}
			got, _, err := decodedBy(d, bytes.NewReader(body), isProtobuf, list.keepsObjects)
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, fmt.Sprintf("list %d of the formats %04b", i, formats), got, list.want)
		}
	}
}

func TestDecoderKeepsNothingOfEarlierCounts(t *testing.T) {
	const list = `{"metadata":{"resourceVersion":"5"},"items":[
		{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1","generation":7},
			"spec":{"name":"x","count":-1},"status":{"healthy":true,"count":3,"observedGeneration":7}},
		{"metadata":{"name":"b","namespace":"n","uid":"u","resourceVersion":"1"},"spec":{"name":"y","count":2}}]}`
	kind := CountKind()
	var got []Count
	take := func(count *Count, _ objectmeta.Draft) (kept bool, err error) {
		got = append(got, *count)
		return false, nil // The decoder reuses the
	}
	_, err := NewDecoder(&kind).List(strings.NewReader(list), false, take)
	testkit.WantError(t, "list", err, "")
	testkit.WantNumber(t, "Counts", len(got), 2)
	testkit.WantText(t, got[0].Invalid, "spec.count is -1")
	testkit.WantEqual(t, "the second Count", got[1], Count{CountSpec: CountSpec{App: "y", Want: 2}})
}

// barePod returns a pod in JSON that has only the metadata that every object has.
func barePod(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u2","resourceVersion":"2"}}`, name)
}

func TestRecordedProtobufReadsAsTheRecordedJSON(t *testing.T) {
	got, gotMeta, err := decoded(recording(t, "list-metadata.pb"), true, podKind("app"))
	if err != nil {
		t.Fatal(err)
	}
	want, wantMeta, err := decoded(recording(t, "list-metadata.txt"), false, podKind("app"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "pods", got, want)
	testkit.WantEqual(t, "metadata", gotMeta, wantMeta)
	testkit.WantNumber(t, "number of pods", len(got), 2)
	if gotMeta.Continue == "" {
		t.Error("the list has no continue token")
	}
}

// decoded returns the pods of a list as described by describe, and its metadata.
func decoded(body []byte, isProtobuf bool, kind *Kind[*Pod]) (pods []string, meta wire.ListMeta, err error) {
	return decodedBy(NewDecoder(kind), bytes.NewReader(body), isProtobuf, true)
}

// decodedBy is decoded for a given decoder and any reader. The decoder may reuse the pods unless keepsObjects is true.
func decodedBy(
	d *Decoder[*Pod], r io.Reader, isProtobuf, keepsObjects bool,
) (pods []string, meta wire.ListMeta, err error) {
	describeNext := func(p *Pod, metadata objectmeta.Draft) (kept bool, err error) {
		p.Metadata = metadata.Keep()
		pods = append(pods, describe(p))
		return keepsObjects, nil
	}
	meta, err = d.List(r, isProtobuf, describeNext)
	return pods, meta, err
}

// recording returns the body of an answer that was recorded from a real API server.
func recording(t testing.TB, name string) []byte {
	body := []byte(testkit.ReadFile(t, "../../../testdata/transcripts/"+name))
	if strings.HasSuffix(name, ".txt") {
		_, body, _ = bytes.Cut(body, []byte("\n\n"))
	}
	return body
}

func TestRecordedListsInProtobuf(t *testing.T) {
	for _, row := range []struct {
		file string
		want []string // not compared if nil
	}{
		{"list-pods.pb", []string{
			"team-0/web-000000-2 43e5ca79-148c-4942-955e-cbf7a98a3bfd 204429 " +
				"ip-10-0-0-71.eu-west-1.compute.internal map[app:web-0]",
			"team-0/web-000010-2 7b2e8173-7cc6-4a75-80b6-c772a4f964d1 204459 " +
				"ip-10-0-0-21.eu-west-1.compute.internal map[app:web-0]",
		}},
		{"list-nodes.pb", nil},
	} {
		t.Run(row.file, func(t *testing.T) {
			got, meta, err := decoded(recording(t, row.file), true, podKind("app"))
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantNumber(t, "objects", len(got), 2)
			if row.want != nil {
				testkit.WantEqual(t, "pods", got, row.want)
			}
			if meta.ResourceVersion == "" {
				t.Error("the list has no resourceVersion")
			}
		})
	}
}

func TestRecordedWatchesInProtobuf(t *testing.T) {
	for _, row := range []struct{ file, wantPattern string }{
		{
			"watch-pods.pb",
			`MODIFIED team-0/web-005000-0 893422ad-\S* 218733 ip-10-0-0-133\S* map\[app:web-100\]\n` +
				`MODIFIED .* 218734 .*\n` +
				`DELETED team-0/web-005010-0 58cfd317-\S* 218735 .*\n` +
				`(BOOKMARK 218735\n){2}`,
		},
		{
			"watch-metadata.pb",
			`MODIFIED default/p2 2bda54ea-2b99-47e1-9896-3abbea112061 218  map\[app:nginx\]\n(.*\n)*`,
		},
		{
			"watch-expired.pb",
			`ERROR 410 Expired too old resource version: 1 \(209512\)\n`,
		},
	} {
		t.Run(row.file, func(t *testing.T) {
			var got strings.Builder
			recordEvent := func(event WatchEvent[*Pod]) error {
				fmt.Fprintln(&got, describeEvent(event))
				return nil
			}
			err := NewDecoder(podKind("app")).Events(bytes.NewReader(recording(t, row.file)), true, recordEvent)
			testkit.WantError(t, "watch", err, "")
			if !regexp.MustCompile("^" + row.wantPattern + "$").MatchString(got.String()) {
				t.Errorf("got the events\n%swant\n%s", got.String(), row.wantPattern)
			}
		})
	}
}

// describeEvent returns everything that is known of a watch event.
func describeEvent(event WatchEvent[*Pod]) string {
	switch event.Type {
	case "ERROR":
		return fmt.Sprintf("ERROR %d %s %s", event.Status.Code, event.Status.Reason, event.Status.Message)
	case "BOOKMARK":
		return "BOOKMARK " + event.Object.ResourceVersion()
	default:
		return event.Type + " " + describe(event.Object)
	}
}

func TestRecordedStatusInProtobuf(t *testing.T) {
	status := wire.ParseStatus(recording(t, "unauthorized.pb"), true)
	testkit.WantEqual(t, "code", status.Code, 401)
	testkit.WantEqual(t, "reason", status.Reason, "Unauthorized")
	testkit.WantEqual(t, "message", status.Message, "Unauthorized")
}

func TestHostileProtobufIsAnErrorAndCostsNoMemory(t *testing.T) {
	for _, row := range hostileLists() {
		t.Run(row.name, func(t *testing.T) {
			body := []byte(row.body)
			var err error
			allocated := allocatedBytes(func() { _, _, err = decoded(body, true, podKind("app")) })
			testkit.WantError(t, "list", err, row.want)
			testkit.WantBetween(t, "allocated bytes", allocated, 0, 256<<10)
		})
	}
}

// hostileList is the body of a list that no server sends. want is a part of the error, which must name the fault.
type hostileList struct{ name, body, want string }

// hostileLists returns lists of pods in protobuf. The fields of a list are 1 (metadata) and 2 (items). Those of an item
// are 1 (metadata) and 2 (spec). Those of its metadata are 1 (name), 5 (uid), 6 (resourceVersion) and 11 (labels).
func hostileLists() []hostileList {
	const (
		magic     = "k8s\x00" // what every object begins with
		tooLong   = ", which is more than its message has left"
		notString = "the field 1 has the wire type 0, not 2"
		notObject = "has the wire type 0, not 2"
	)
	const (
		varintType = iota
		fixed64Type
		bytesType
		groupType
	)
	varint := func(v uint64) []byte { return binary.AppendUvarint(nil, v) }
	tag := func(field, wireType uint64) []byte { return varint(field<<3 | wireType) }
	bytesOf := func(size int) []byte { return bytes.Repeat([]byte("a"), size) }
	object := func(list []byte) string {
		var envelope protobuf.Message
		envelope.Bytes(1, []byte("\x12\x07PodList"))
		envelope.Bytes(2, list)
		return magic + string(envelope)
	}
	list := func(fields ...[]byte) string {
		metadata := []byte{0x0a, 3, 0x12, 1, '5'} // resourceVersion 5
		return object(append(metadata, bytes.Join(fields, nil)...))
	}
	item := func(metadata ...[]byte) []byte {
		var pod, items protobuf.Message
		pod.Bytes(1, bytes.Join(metadata, nil))
		items.Bytes(2, pod)
		return items
	}
	var good, notUTF8, number, longLabel protobuf.Message // metadata of pods
	good.Text(1, "a")
	good.Text(5, "u")
	good.Text(6, "1")
	notUTF8.Text(1, "a\xff")
	number.Int(1, 7)
	longLabel.Bytes(11, append(tag(1, bytesType), 99))
	partial := `{"kind":"PartialObjectMetadata","metadata":{"generateName":"p-","namespace":"default"}}`

	return []hostileList{
		// The envelope, in which field 2 is the list.
		{"nothing", "", "unexpected EOF"},
		{
			"JSON",
			`{"kind":"PodList"}`,
			`after byte 0: protobuf must begin with "k8s\x00", but this begins with "{\"ki"`,
		},
		{"no list", magic, "not a list"},
		{"an object that is no list", string(fakekube.Protobuf([]byte(partial))), "not a list"},
		{"half a tag", magic + "\x80", "after byte 5: unexpected EOF"},
		{"a tag without end", magic + strings.Repeat("\xff", 20), "overflows a 64-bit integer"},
		{
			"64 bits of length",
			magic + string(tag(2, bytesType)) + string(varint(1<<63)),
			"after byte 15: the field's length is 9223372036854775808",
		},
		{
			"the greatest length",
			magic + string(tag(2, bytesType)) + string(varint(1<<64-1)),
			"after byte 15: the field's length is 18446744073709551615",
		},
		{
			"a list that never comes",
			magic + string(tag(2, bytesType)) + string(varint(1<<40)),
			"after byte 11: unexpected EOF",
		},

		// The list.
		{"a group", list(tag(2, groupType)), "after byte 23: the field has the unknown wire type 3"},
		{"a fixed field without bytes", list(tag(4, fixed64Type)), "the field's length is 8" + tooLong},
		{
			"an item of 1 TB",
			list(tag(2, bytesType), varint(1<<40)),
			"after byte 29: the field's length is 1099511627776" + tooLong,
		},
		{
			"an item beyond the list",
			list(tag(2, bytesType), varint(9)),
			"after byte 24: the field's length is 9" + tooLong,
		},
		{"an item of 9 MB", list(item(bytes.Repeat([]byte{0x92, 1, 0}, 3<<20))), "9437189 bytes in one piece"},
		{"an item that is a number", list(tag(2, varintType), varint(9)), "after byte 24: the field 2 " + notObject},

		// An item.
		{
			"metadata beyond the item",
			list(tag(2, bytesType), varint(2), tag(1, bytesType), varint(9)),
			"item 0: after byte 26: the field's length is 9" + tooLong,
		},
		{
			"metadata that is a number",
			list(tag(2, bytesType), varint(2), tag(1, varintType), varint(9)),
			"item 0: after byte 26: the field 1 " + notObject,
		},
		{"a name that is a number", list(item(number)), "item 0: after byte 28: " + notString},
		{
			"a name that is not UTF-8",
			list(item(notUTF8)),
			"item 0: after byte 28: a string of 2 bytes is not UTF-8",
		},
		{
			"a name of 1 MB",
			list(item(tag(1, bytesType), varint(1<<20), bytesOf(1<<20))),
			"item 0: after byte 36: a string of 1048576 bytes is too long",
		},
		{
			"a label beyond its map",
			list(item(longLabel)),
			"item 0: after byte 30: the field's length is 99" + tooLong,
		},
		{
			"a field of metadata that Kubernetes does not have",
			list(tag(2, bytesType), varint(5), tag(1, bytesType), varint(3), tag(1011, bytesType), varint(9)),
			"item 0: after byte 29: the field's length is 9" + tooLong,
		},
		{"no name", list(item()), `item 0: Pod "" has no metadata.name`},
		{"the second has no name", list(item(good), item()), `item 1: Pod "" has no metadata.name`},
		{"cut in an item", list(item(good))[:31], "item 0: after byte 31: unexpected EOF"},
	}
}

// allocatedBytes returns how many bytes f allocates, including those that it frees again.
func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The limit for JSON is three times that for protobuf, because JSON is longer: "<" takes six bytes there.
func TestObjectsOfUpTo8MBOfProtobufAreRead(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("takes ten seconds under the race detector, and runs in one goroutine")
	}
	inJSON := func(text string) []byte { return []byte(text) }
	inProtobuf := func(text string) []byte { return fakekube.Protobuf([]byte(text)) }
	for _, row := range []struct {
		name       string
		isProtobuf bool
		encode     func(text string) []byte
		limit      int
		wantError  string // for an object beyond the limit
	}{
		{"JSON", false, inJSON, 24 << 20, "more than 25165824 bytes in one piece"},
		{"protobuf", true, inProtobuf, 8 << 20, " bytes in one piece are too many"},
	} {
		t.Run(row.name, func(t *testing.T) {
			const medium = 7 << 20
			largest := podOfSize(row.limit - 1000)
			list := row.encode(fixture.PodListJSON(largest, podOfSize(medium), podOfSize(1), podOfSize(medium)))
			got, _, err := decoded(list, row.isProtobuf, podKind("app"))
			testkit.WantError(t, "list of large objects", err, "")
			testkit.WantNumber(t, "large objects", len(got), 4)

			list = row.encode(fixture.PodListJSON(podOfSize(1), podOfSize(row.limit)))
			got, _, err = decoded(list, row.isProtobuf, podKind("app"))
			testkit.WantError(t, "list with an object that is too large", err, "after n/big: items: item 1: ")
			testkit.WantError(t, "list with an object that is too large", err, row.wantError)
			testkit.WantNumber(t, "objects before that", len(got), 1)

			n, err := readThreeFrames(row.encode(podOfSize(3<<20)), row.isProtobuf)
			testkit.WantError(t, "frames of 3 MB", err, "")
			testkit.WantNumber(t, "frames of 3 MB", n, 3)

			n, err = readThreeFrames(row.encode(podOfSize(row.limit)), row.isProtobuf)
			testkit.WantError(t, "frames that are too large", err, row.wantError)
			testkit.WantNumber(t, "frames that are too large", n, 0)
		})
	}
}

// podOfSize returns a pod in JSON, with an annotation of this size.
func podOfSize(size int) string {
	return `{"kind":"Pod","metadata":{"name":"big","namespace":"n","uid":"u","resourceVersion":"6",` +
		`"annotations":{"a":"` + strings.Repeat("x", size) + `"}}}`
}

// readThreeFrames decodes three equal watch events about an object, and returns how many of them were accepted.
func readThreeFrames(pod []byte, isProtobuf bool) (n int, err error) {
	frame := []byte(`{"type":"ADDED","object":` + string(pod) + "}" + "\n")
	if isProtobuf {
		frame = protobuf.Event("ADDED", pod)
	}
	countEvent := func(WatchEvent[*Pod]) error {
		n++
		return nil
	}
	err = NewDecoder(podKind("app")).Events(bytes.NewReader(bytes.Repeat(frame, 3)), isProtobuf, countEvent)
	return n, err
}

func TestDecompressionBombsAreNotHeld(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("takes half a minute under the race detector, and runs in one goroutine")
	}
	const tooLong = "more than 25165824 bytes in one piece"
	beginningOfList := append(binary.AppendUvarint([]byte{2<<3 | 2}, 1<<40), 0x0a, 3, 0x12, 1, '5') // of 1 TB
	inList := func(tag byte) string {
		return "k8s\x00" + string(beginningOfList) + string(binary.AppendUvarint([]byte{tag}, 50<<20))
	}
	for _, row := range []struct {
		name       string
		isProtobuf bool
		beginning  string
		want       string
	}{
		{"an item in JSON", false, `{"items":[{"metadata":{"name":"`, tooLong},
		{"a field in JSON", false, `{"kind":"`, tooLong},
		{"a name in JSON", false, `{"`, tooLong},
		{"an item in protobuf", true, inList(0x12), "52428800 bytes in one piece are too many"},
		{"an unknown field in protobuf, which is skipped", true, inList(0x7a), "unexpected EOF"},
	} {
		t.Run(row.name, func(t *testing.T) {
			src, err := gzip.NewReader(bytes.NewReader(fixture.GzipBomb(row.beginning, 50<<20)))
			if err != nil {
				t.Fatal(err)
			}
			allocated := allocatedBytes(func() {
				_, err = NewDecoder(podKind("app")).List(src, row.isProtobuf, keepNone)
			})
			testkit.WantError(t, "list", err, row.want)
			// The buffer grows to 32 MB by doubling, so all its sizes together take up to 64 MB.
			testkit.WantBetween(t, "allocated MB", allocated>>20, 0, 80)
		})
	}
}
