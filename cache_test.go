package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/object"
	"podcount/internal/api/objectmeta"
	"podcount/internal/api/wire"
	"podcount/internal/run/options"
	"podcount/internal/run/process"
	"podcount/internal/view/observe"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/protobuf"
	"podcount/lab/suite"
	"podcount/lab/testkit"
)

func TestListReportsOnlyChanges(t *testing.T) {
	s := NewStore[*Pod]()
	type pods = []*Pod
	for _, step := range []struct {
		name string
		pods []*Pod
		want []string
	}{
		{"an empty list", nil, nil},
		{
			"two pods",
			pods{makePod("a", "1", "10", "x"), makePod("b", "2", "11", "x")},
			[]string{"added a1", "added b2"},
		},
		{
			"the same pods",
			pods{makePod("a", "1", "10", "x"), makePod("b", "2", "11", "x")},
			nil,
		},
		{
			"newer versions",
			pods{makePod("a", "1", "30", "x"), makePod("b", "2", "31", "x")},
			nil,
		},
		{
			"another node, and another pod",
			pods{makePod("a", "1", "40", "y"), makePod("c", "3", "41", "y")},
			[]string{"added c3", "removed b2", "updated a"},
		},
		{
			"a recreated pod",
			pods{makePod("a", "9", "50", "y"), makePod("c", "3", "41", "y")},
			[]string{"added a9", "removed a1"},
		},
		{
			"an older version, which is the truth in a list",
			pods{makePod("a", "9", "5", "z")},
			[]string{"removed c3", "updated a"},
		},
		{"an empty list again", nil, []string{"removed a9"}},
		{"one pod", pods{makePod("d", "4", "60", "x")}, []string{"added d4"}},
	} {
		got := describeDeltas(listPods(s, step.pods...))
		testkit.WantEqual(t, "changes by "+step.name, got, step.want)
	}
}

// listPods makes the store equal to a list of these pods, and returns the changes.
func listPods(s *Store[*Pod], pods ...*Pod) []Delta[*Pod] {
	listing := s.newListing()
	addPods(listing, pods...)
	changes, _ := listing.Commit()
	return changes
}

// addPods adds pods without labels to a listing.
func addPods(listing *Listing[*Pod], pods ...*Pod) {
	for _, p := range pods {
		metadata := draftOf(p.Key().Name, p.UID(), p.ResourceVersion())
		if _, err := listing.Add(p, metadata); err != nil {
			panic(err)
		}
	}
}

// describeDeltas returns what has happened to some pods, sorted: see describeDelta.
func describeDeltas(deltas []Delta[*Pod]) (descriptions []string) {
	for _, delta := range deltas {
		descriptions = append(descriptions, describeDelta(delta))
	}
	slices.Sort(descriptions)
	return descriptions
}

// describeDelta returns what has happened to a pod, its name, and the uid unless it is the same as before.
func describeDelta(delta Delta[*Pod]) string {
	switch {
	case delta.Old == nil:
		return "added " + delta.New.Key().Name + delta.New.UID()
	case delta.New == nil:
		return "removed " + delta.Old.Key().Name + delta.Old.UID()
	default:
		return "updated " + delta.New.Key().Name
	}
}

// makePod returns a pod of the namespace ns, without labels.
func makePod(name, uid, version, node string) *Pod {
	return &Pod{Meta: object.Meta{Metadata: draftOf(name, uid, version).Keep()}, NodeName: node}
}

// draftOf returns the metadata of an object of the namespace ns, without labels.
func draftOf(name, uid, version string) objectmeta.Draft {
	draft, err := objectmeta.NewPacker(nil).Pack(objectmeta.Fields{
		Namespace:       []byte("ns"),
		Name:            []byte(name),
		UID:             []byte(uid),
		ResourceVersion: []byte(version),
	})
	if err != nil {
		panic(err)
	}
	return draft
}

func TestExactListCorrectsOnlyWhatIsNotNewer(t *testing.T) {
	for _, row := range []struct {
		name        string
		listed      []*Pod // at version 50
		answer      *Pod   // to a patch, which arrives after the list was read
		differences []string
		changes     []string
	}{
		{name: "nothing", listed: []*Pod{makePod("a", "1", "10", "x"), makePod("b", "2", "11", "x")}},
		{
			name:        "a newer version",
			listed:      []*Pod{makePod("a", "1", "50", "y"), makePod("b", "2", "11", "x")},
			differences: []string{"updated a"},
			changes:     []string{"updated a"},
		},
		{
			name:        "a newer version that differs in no field that is kept",
			listed:      []*Pod{makePod("a", "1", "50", "x"), makePod("b", "2", "11", "x")},
			differences: []string{"updated a"},
		},
		{
			name:        "an older version: etcd was restored from a backup",
			listed:      []*Pod{makePod("a", "1", "9", "y"), makePod("b", "2", "11", "x")},
			differences: []string{"updated a"},
			changes:     []string{"updated a"},
		},
		{
			name:        "an object that is missing, and one that is new",
			listed:      []*Pod{makePod("a", "1", "10", "x"), makePod("c", "3", "12", "x")},
			differences: []string{"added c3", "removed b2"},
			changes:     []string{"added c3", "removed b2"},
		},
		{
			name:        "a recreated object",
			listed:      []*Pod{makePod("a", "9", "12", "x"), makePod("b", "2", "11", "x")},
			differences: []string{"updated a"},
			changes:     []string{"added a9", "removed a1"},
		},
		{
			name:        "another object of the same version: etcd was restored from a backup, and goes on",
			listed:      []*Pod{makePod("a", "9", "10", "x"), makePod("b", "2", "11", "x")},
			differences: []string{"updated a"},
			changes:     []string{"added a9", "removed a1"},
		},
		{
			name:   "an answer that is newer than the list",
			listed: []*Pod{makePod("a", "1", "10", "x"), makePod("b", "2", "11", "x")},
			answer: makePod("a", "1", "51", "y"),
		},
		{
			name:   "an answer that is newer than the list, which shows a version that was lost",
			listed: []*Pod{makePod("a", "1", "50", "x"), makePod("b", "2", "11", "x")},
			answer: makePod("a", "1", "51", "y"),
		},
		{
			name:   "an answer with the version in the list",
			listed: []*Pod{makePod("a", "1", "50", "y"), makePod("b", "2", "11", "x")},
			answer: makePod("a", "1", "50", "y"),
		},
	} {
		s := NewStore[*Pod]()
		listPods(s, makePod("a", "1", "10", "x"), makePod("b", "2", "11", "x"))
		listing := s.newListing()
		addPods(listing, row.listed...)
		if row.answer != nil {
			s.applyAnswer(row.answer)
		}
		differences, changes := listing.CommitExact("50")
		testkit.WantEqual(t, row.name+": differences", describeDeltas(differences), row.differences)
		testkit.WantEqual(t, row.name+": changes", describeDeltas(changes), row.changes)
		if row.answer != nil && s.Get(Key{Namespace: "ns", Name: "a"}).ResourceVersion() != row.answer.ResourceVersion() {
			t.Errorf("%s: the store does not hold the answer", row.name)
		}
	}
}

func TestStoreMayChangeWhileItsNumbersAreRead(t *testing.T) {
	s := NewStore[*Pod]()
	perNode := NumberBy(s, nodeKeyOf)
	s.apply("ADDED", makePod("a", "1", "10", "n"))
	s.apply("ADDED", makePod("b", "1", "10", "n2"))
	visited := 0
	for node := range perNode.All("") {
		visited++
		if !s.mu.TryLock() {
			t.Fatal("the store is locked")
		}
		s.mu.Unlock()
		s.apply("ADDED", makePod(node, "1", "11", "late "+node))
	}
	testkit.WantNumber(t, "numbers that were read", visited, 2)
	testkit.WantEqual(t, "a number that came meanwhile", perNode.Number(Key{Name: "late n"}), 1)
}

func TestDroppedListChangesNothing(t *testing.T) {
	s := NewStore[*Pod]()
	perNode := NumberBy(s, nodeKeyOf)
	a := makePod("a", "1", "10", "x")
	b := makePod("b", "2", "11", "x")
	listPods(s, a)

	dropped := s.newListing()
	addPods(dropped, a, b)

	testkit.WantNumber(t, "changes by the next list", len(listPods(s, a)), 0)
	testkit.WantNumber(t, "objects", s.Len(), 1)
	testkit.WantNumber(t, "objects in the index", perNode.Number(Key{Name: "x"}), 1)
}

func TestIndexesEqualARecountAfterAnyHistory(t *testing.T) {
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 1))
		s := NewStore[*Pod]()
		counts := NumberBy(s, nodeKeyOf)
		objects := IndexBy(s, nodeKeyOf)
		listPods(s)
		for step := range 300 {
			changeAtRandom(s, dice, step)
			recount := map[string]int{}
			for _, p := range s.All() {
				if p.NodeName != "" {
					recount[p.NodeName]++
				}
			}
			found := map[string]int{}
			for node := range objects.objects {
				found[node.Name] = len(objects.Objects(node))
			}
			what := fmt.Sprintf("seed %d, step %d: ", seed, step)
			testkit.WantEqual(t, what+"NumberIndex", maps.Collect(counts.All("")), recount)
			testkit.WantEqual(t, what+"ObjectIndex", found, recount)
			if t.Failed() {
				return
			}
		}
	}
}

// changeAtRandom changes a store in one of the ways in which a reflector does. The versions are near step: some events
// are late, and answers to patches are ahead of the watch.
func changeAtRandom(s *Store[*Pod], dice *rand.Rand, step int) {
	randomPod := func(version int) *Pod {
		name := strconv.Itoa(dice.IntN(8))
		uid := strconv.Itoa(dice.IntN(3))
		node := []string{"", "n1", "n2"}[dice.IntN(3)]
		return makePod(name, uid, strconv.Itoa(version), node)
	}
	switch dice.IntN(8) {
	case 0:
		listing := s.newListing()
		for range dice.IntN(8) {
			addPods(listing, randomPod(step))
		}
		switch dice.IntN(3) {
		case 0:
			listing.Commit()
		case 1:
			listing.CommitExact(strconv.Itoa(step))
		default: // The listing is dropped.
		}
	case 1:
		s.applyAnswer(randomPod(step + 2))
	case 2:
		s.apply("DELETED", randomPod(step))
	default:
		eventType := []string{"ADDED", "MODIFIED"}[dice.IntN(2)]
		s.apply(eventType, randomPod(step-dice.IntN(5)))
	}
}

func nodeKeyOf(p *Pod) Key { return Key{Name: p.NodeName} }

func TestIndexByALabelEqualsARecount(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	s := NewStore[*Pod]()
	index := NumberBy(s, func(p *Pod) Key {
		app, _ := p.Label("app")
		return Key{Namespace: p.Key().Namespace, Name: app}
	})
	d := object.NewDecoder(podKind("app"))
	for step := range 3000 {
		name := fmt.Sprint("p", dice.IntN(20))
		app := fmt.Sprint("a", dice.IntN(5))
		isUnique := dice.IntN(4) == 0 // Unique labels are not shared: see objectmeta.Packer.
		if isUnique {
			app = "only-" + name
		}
		text := fixture.PodJSON(name, strconv.Itoa(step+1), `"app":"`+app+`"`)
		namespace := fmt.Sprint("ns", dice.IntN(3))
		text = strings.Replace(text, `"ns"`, `"`+namespace+`"`, 1)
		p, err := d.Parse(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		s.apply([]string{"ADDED", "MODIFIED", "DELETED"}[dice.IntN(3)], p)

		recount := map[Key]int{}
		for _, p := range s.All() {
			recount[Key{Namespace: p.Key().Namespace, Name: appOf(p)}]++
		}
		counts := map[Key]int{}
		for namespace, names := range index.numbers {
			for name, count := range names {
				counts[Key{Namespace: namespace, Name: name}] = count
			}
		}
		if !maps.Equal(recount, counts) {
			t.Fatalf("step %d: the index has %v, want %v", step, counts, recount)
		}
	}
}

func TestAnswerReplacesOnlyAnOlderVersion(t *testing.T) {
	s := NewStore[*Pod]()
	wantNode := func(after, want string) {
		t.Helper()
		testkit.WantEqual(t, "node after "+after, s.Get(Key{Namespace: "ns", Name: "a"}).NodeName, want)
	}
	s.apply("ADDED", makePod("a", "1", "10", "old"))
	s.applyAnswer(makePod("a", "1", "12", "new"))
	wantNode("a patch", "new")
	s.applyAnswer(makePod("a", "1", "11", "older"))
	wantNode("the answer to an older patch", "new")
	s.applyAnswer(makePod("a", "2", "99", "other uid"))
	wantNode("a patch of another pod with this name", "new")
	s.apply("MODIFIED", makePod("a", "1", "11", "late event"))
	wantNode("an event from before the patch", "new")
	s.apply("DELETED", makePod("a", "1", "11", "late event"))
	testkit.WantNumber(t, "objects after a removal from before the patch", s.Len(), 1)

	s.apply("DELETED", makePod("a", "1", "13", "x"))
	s.applyAnswer(makePod("a", "1", "14", "deleted"))
	testkit.WantNumber(t, "objects after an answer that arrived after the deletion", s.Len(), 0)
}

func TestPatchedObjectSurvivesAListThatBeganBefore(t *testing.T) {
	s := NewStore[*Pod]()
	listPods(s, makePod("a", "1", "10", "x"))
	listing := s.newListing()
	addPods(listing, makePod("a", "1", "10", "x"))
	s.applyAnswer(makePod("a", "1", "11", "new"))
	listing.Commit()
	if s.Get(Key{Namespace: "ns", Name: "a"}) == nil {
		t.Error("the list removed the patched object")
	}
}

func TestNoEventIsLostIfVersionsAreNoNumbers(t *testing.T) {
	s := NewStore[*Pod]()
	s.apply("ADDED", makePod("a", "u", "odd-2", "n1"))
	changes := s.apply("MODIFIED", makePod("a", "u", "odd-1", "n2"))
	testkit.WantNumber(t, "changes by MODIFIED", len(changes), 1)
	changes = s.apply("DELETED", makePod("a", "u", "odd-3", "n2"))
	testkit.WantNumber(t, "changes by DELETED", len(changes), 1)
	testkit.WantNumber(t, "objects after DELETED", s.Len(), 0)
}

// Whether a pod shares its labels depends on the pods that were read before it, so that must not count as a change.
func TestListKnowsAPodWithSharedLabels(t *testing.T) {
	s := NewStore[*Pod]()
	s.reportsEveryVersion = true
	list := func(d *object.Decoder[*Pod], pods ...string) []Delta[*Pod] {
		t.Helper()
		listing := s.newListing()
		if _, err := d.List(strings.NewReader(fixture.PodListJSON(pods...)), false, listing.Add); err != nil {
			t.Fatal(err)
		}
		changes, _ := listing.Commit()
		return changes
	}
	a := fixture.PodJSON("a", "1", `"app":"web"`)
	b := fixture.PodJSON("b", "1", `"app":"web"`)
	d := object.NewDecoder(podKind("app"))
	list(d, a, b) // a has labels of its own, b has shared ones

	testkit.WantNumber(t, "changes in another order", len(list(d, b, a)), 0)
	testkit.WantNumber(t, "changes by a new decoder", len(list(object.NewDecoder(podKind("app")), b, a)), 0)

	// A list can prove that the cache is wrong, even with the same version.
	changes := list(d, a, fixture.PodJSON("b", "1", `"app":"db"`))
	if len(changes) != 1 || appOf(changes[0].New) != "db" {
		t.Errorf("got %d changes from the label web to db, want 1", len(changes))
	}

	changes = list(d, a, fixture.PodJSON("b", "2", `"app":"db"`))
	testkit.WantNumber(t, "changes of only a version", len(changes), 1)
	s.reportsEveryVersion = false
	changes = list(d, fixture.PodJSON("a", "2", `"app":"web"`), fixture.PodJSON("b", "3", `"app":"db"`))
	testkit.WantNumber(t, "changes of only versions, which are not reported", len(changes), 0)
}

func TestMemoryForEachPod(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("the race detector changes the use of memory")
	}
	const n = 50000
	for _, row := range podLabels {
		t.Run(row.name, func(t *testing.T) {
			got := testkit.HeapBytes(func() any { return managerWithPods(t, n, row.labels) }) / n
			testkit.WantBetween(t, "bytes for each pod", got, 0, row.mostBytes)
		})
	}
}

// podLabels are sets of labels that take different amounts of memory. suite.Crowd replaces ###### and @@@@@ by numbers.
var podLabels = []struct {
	name      string
	labels    fakekube.Object
	mostBytes float64 // for each pod
}{
	{"no labels", fakekube.Object{"pod-template-hash": "5d4f8c7b9"}, 200},
	{"a label that 400 pods share", fakekube.Object{"app": "web-@@@@@"}, 200},
	{"a short label that no two share", fakekube.Object{"run": "web-######"}, 300},
	{"three long labels that no two share", fakekube.Object{
		"app":                    "the-first-of-three-labels-that-are-rather-long-######",
		"app.kubernetes.io/name": "the-second-of-three-labels-that-are-rather-long-######",
		"run":                    "the-third-of-three-labels-that-are-rather-long-######",
	}, 560},
}

// podKind returns a kind of pods that keeps the labels with these keys.
func podKind(labels ...string) *object.Kind[*Pod] {
	kind := object.PodKind()
	kind.MetadataOnly = false
	kind.Protobuf = false
	kind.Labels = labels
	return &kind
}

// managerWithPods returns a manager that has listed n pods with these labels.
func managerWithPods(t testing.TB, n int, labels fakekube.Object) *program {
	m := countingManager(t)
	crowd := &suite.Crowd{Pods: n, Nodes: n / 400, Labels: labels}
	listing := m.pods.store.newListing()
	_, err := object.NewDecoder(&m.pods.kind).List(bytes.NewReader(crowd.Body(true, false)), true, listing.Add)
	if err != nil || listing.count != n {
		t.Fatalf("listed %d pods with the error %v, want %d pods", listing.count, err, n)
	}
	listing.Commit()
	return m
}

// countingManager returns a manager with the controller count. Its pods keep the labels that Counts select by, and are
// indexed by them.
func countingManager(t testing.TB) *program {
	m := idleManager(t, &options.Options{Wire: "protobuf"})
	setUpCount(m, m.newController("test"))
	return m
}

// idleManager returns a manager without a client, which is never started.
func idleManager(t testing.TB, o *options.Options) *program {
	lifetime := process.NewLifetime(t.Context(), 0)
	return newProgram(o, nil, lifetime, nil, observe.NewSinks(quietLog(), nil))
}

func TestListOfKnownPodsAllocatesAlmostNothing(t *testing.T) {
	f := fakekube.New()
	fixture.AddPods(f, 1000)
	body := podList(f, wire.Protobuf)
	s := NewStore[*Pod]()
	d := object.NewDecoder(podKind("app"))
	list := func() {
		listing := s.newListing()
		_, err := d.List(bytes.NewReader(body), true, listing.Add)
		if err != nil || listing.count != 1000 {
			t.Fatalf("listed %d pods with the error %v, want 1000 pods", listing.count, err)
		}
		changes, _ := listing.Commit()
		if len(changes) > 0 {
			t.Fatalf("%d changes, want none", len(changes))
		}
	}
	testkit.WantBetween(t, "allocations for 1,000 pods", testing.AllocsPerRun(10, list), 0, 50)
}

// podList returns the fake's list of all pods, in a media type.
func podList(f *fakekube.Server, mediaType string) []byte {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/api/v1/pods", nil)
	r.Header.Set("Accept", mediaType)
	f.ServeHTTP(w, r)
	return w.Body.Bytes()
}

func TestDecompressionBombIsNotHeldByTheClient(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("takes long under the race detector")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", wire.JSON)
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(fixture.GzipBomb(`{"metadata":{"name":"`, 8<<20))
	}))
	defer server.Close()
	base, _ := url.Parse(server.URL)
	config := &kubeconfig.Config{Server: base, Credential: noCredential}
	client := newClient(&options.Options{}, config, nil, observe.NewSinks(quietLog(), nil))
	defer client.Close()
	var answer json.RawMessage
	get := kube.Request{Method: http.MethodGet, API: "/api/v1", Resource: "nodes", Name: "n"}
	err := client.Send(t.Context(), get, testkit.Into(&answer))
	testkit.WantError(t, "Send", err, "get nodes/n: more than 4194304 bytes in one piece")
}

func TestJSONObjectHasTheFieldsOfItsStruct(t *testing.T) {
	rows := []struct {
		name, spec   string
		wantReplicas int
		wantZones    string
		wantInvalid  string
	}{
		{"all", `{"replicas":3,"zones":["a","b"],"other":{}}`, 3, "[a b]", ""},
		{"nothing after something", `{}`, 0, "[]", ""},
		{"null", `null`, 0, "[]", ""},
		{"a wrong type", `{"replicas":"3","zones":["a"]}`, 0, "[a]", "json: cannot unmarshal string"},
		{"a right type after that", `{"replicas":4}`, 4, "[]", ""},
	}
	var list []string
	for i, row := range rows {
		list = append(list, widgetJSON(fmt.Sprint("w", i), "1", row.spec))
	}
	store := NewStore[*object.JSONObject[widget]]()
	listWidgets(t, store, list...)
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got := store.Get(Key{Name: fmt.Sprint("w", i)})
			testkit.WantEqual(t, "replicas", got.Fields.Spec.Replicas, row.wantReplicas)
			testkit.WantEqual(t, "zones", fmt.Sprint(got.Fields.Spec.Zones), row.wantZones)
			if !strings.HasPrefix(got.Invalid, row.wantInvalid) || (got.Invalid == "") != (row.wantInvalid == "") {
				t.Errorf("Invalid is %q, want %q", got.Invalid, row.wantInvalid)
			}
		})
	}
}

// widget holds the fields of a kind that exists only in this test.
type widget struct {
	Spec struct {
		Replicas int
		Zones    []string
	}
}

// widgetJSON returns a widget with this spec in JSON.
func widgetJSON(name, version, spec string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":"u","resourceVersion":%q},"spec":%s}`, name, version, spec)
}

// listWidgets makes the store equal to a list of these widgets, and returns how many were new to it.
func listWidgets(t *testing.T, store *Store[*object.JSONObject[widget]], widgets ...string) (kept int) {
	t.Helper()
	kind := object.JSONKind[widget]("Widget", "/apis/example.com/v1", "widgets")
	list := `{"metadata":{"resourceVersion":"9"},"items":[` + strings.Join(widgets, ",") + `]}`
	listing := store.newListing()
	add := func(obj *object.JSONObject[widget], metadata objectmeta.Draft) (bool, error) {
		isKept, err := listing.Add(obj, metadata)
		if isKept {
			kept++
		}
		return isKept, err
	}
	if _, err := object.NewDecoder(&kind).List(strings.NewReader(list), false, add); err != nil {
		t.Fatal(err)
	}
	listing.Commit()
	return kept
}

func TestJSONObjectThatIsKnownIsNotKeptAgain(t *testing.T) {
	const spec = `{"replicas":3,"zones":["a","b"]}`
	store := NewStore[*object.JSONObject[widget]]()
	first := listWidgets(t, store, widgetJSON("w", "1", spec))
	again := listWidgets(t, store, widgetJSON("w", "1", spec), widgetJSON("empty", "2", "{}"))
	testkit.WantEqual(t, "objects kept of the first list", first, 1)
	testkit.WantEqual(t, "objects kept of the same list and one more", again, 1)

	// The decoder has reused the memory of the object that was not kept.
	empty := store.Get(Key{Name: "empty"})
	testkit.WantEqual(t, "fields of an object without a spec's fields", empty.Fields, widget{})
}

func TestJSONObjectReportsChangesOfItsFieldsOnly(t *testing.T) {
	rows := []struct {
		name, spec string
		want       int
	}{
		{"nothing", `{"replicas":3,"zones":["a"]}`, 0},
		{"another field", `{"replicas":3,"zones":["a"],"other":1}`, 0},
		{"a number", `{"replicas":4,"zones":["a"]}`, 1},
		{"an element", `{"replicas":3,"zones":["b"]}`, 1},
		{"a type", `{"replicas":3,"zones":"a"}`, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			kind := object.JSONKind[widget]("Widget", "/apis/example.com/v1", "widgets")
			store := NewStore[*object.JSONObject[widget]]()
			listWidgets(t, store, widgetJSON("w", "1", `{"replicas":3,"zones":["a"]}`))
			now, err := object.NewDecoder(&kind).Parse(strings.NewReader(widgetJSON("w", "2", row.spec)))
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "changes", len(store.apply("MODIFIED", now)), row.want)
		})
	}
}

// appOf returns the value of a pod's label app.
func appOf(p *Pod) string {
	app, _ := p.Label("app")
	return app
}

// BenchmarkMemoryPerPod measures the memory for a pod, its place in the store, and its place in the index of Counts.
func BenchmarkMemoryPerPod(b *testing.B) {
	const n = 400000
	for _, c := range podLabels {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(testkit.HeapBytes(func() any { return managerWithPods(b, n, c.labels) })/n, "B/pod")
			}
		})
	}
}

// listFormats are the formats in which an API server can send a list.
var listFormats = []struct {
	name         string
	isProtobuf   bool
	metadataOnly bool
}{
	{"metadata", true, true},
	{"protobuf", true, false},
	{"metadata-json", false, true},
	{"json", false, false},
}

func BenchmarkList100000(b *testing.B) {
	for _, format := range listFormats {
		b.Run(format.name, func(b *testing.B) {
			data := (&suite.Crowd{Pods: 100000, Nodes: 1000}).Body(format.isProtobuf, !format.metadataOnly)
			kind := podKind()
			kind.MetadataOnly = format.metadataOnly
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				s := NewStore[*Pod]()
				NumberBy(s, nodeKeyOf)
				listing := s.newListing()
				_, err := object.NewDecoder(kind).List(bytes.NewReader(data), format.isProtobuf, listing.Add)
				if err != nil {
					b.Fatal(err)
				}
				listing.Commit()
			}
		})
	}
}

func BenchmarkRelist100000Unchanged(b *testing.B) {
	for _, format := range listFormats[:3] {
		b.Run(format.name, func(b *testing.B) {
			data := (&suite.Crowd{Pods: 100000, Nodes: 1000}).Body(format.isProtobuf, !format.metadataOnly)
			kind := podKind()
			kind.MetadataOnly = format.metadataOnly
			d := object.NewDecoder(kind)
			s := NewStore[*Pod]()
			NumberBy(s, nodeKeyOf)
			list := func() (changes int) {
				listing := s.newListing()
				_, err := d.List(bytes.NewReader(data), format.isProtobuf, listing.Add)
				if err != nil {
					b.Fatal(err)
				}
				deltas, _ := listing.Commit()
				return len(deltas)
			}
			list()
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				testkit.WantNumber(b, "changes by a relist", list(), 0)
			}
		})
	}
}

// BenchmarkEvent measures an event from its bytes to the keys in the queue: a pod moves from one node to another.
func BenchmarkEvent(b *testing.B) {
	for _, size := range []struct{ pods, nodes int }{{1000, 33}, {150000, 5000}} {
		for _, format := range []string{"protobuf", "json"} {
			b.Run(fmt.Sprintf("%s/%d-pods", format, size.pods), func(b *testing.B) {
				crowd := &suite.Crowd{Pods: size.pods, Nodes: size.nodes}
				benchmarkEvents(b, crowd, format == "protobuf")
			})
		}
	}
}

func benchmarkEvents(b *testing.B, crowd *suite.Crowd, isProtobuf bool) {
	m := idleManager(b, &options.Options{NodeLabel: "example.com/n", Wire: "protobuf"})
	queue := NewQueue(m.life.Stop, quietQueue(time.Millisecond, time.Second))
	base := m.manager.Add("test", queue)
	controller := &podCountController{Controller: base, options: m.options, pods: m.pods}
	go discardKeys(queue)
	d := object.NewDecoder(podKind())
	listing := m.pods.store.newListing()
	if _, err := d.List(bytes.NewReader(crowd.Body(true, true)), true, listing.Add); err != nil {
		b.Fatal(err)
	}
	listing.Commit()

	const n = 5000
	watch := moves(crowd, n, isProtobuf)
	addKeys := func(event object.WatchEvent[*Pod]) error {
		for _, delta := range m.pods.store.apply(event.Type, event.Object) {
			controller.onPodChange(delta)
		}
		return nil
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%n > 0 {
			continue // the first of n iterations has processed n events
		}
		if err := d.Events(bytes.NewReader(watch), isProtobuf, addKeys); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// discardKeys processes the keys of a queue without doing anything, until the queue ends.
func discardKeys(q *Queue) {
	for {
		key, ok := q.Get()
		if !ok {
			return
		}
		q.Done(key, Result{}, nil)
	}
}

// moves returns a watch with n events, each of which moves a pod of the crowd to another node.
func moves(crowd *suite.Crowd, n int, isProtobuf bool) (watch []byte) {
	template, _ := json.Marshal(suite.CrowdPod)
	for i := range n {
		const stride = 7919 // a prime, so the pods differ from each other
		index := i * stride % crowd.Pods
		oldNode := fmt.Appendf(nil, "node-%05d", index%crowd.Nodes)
		newNode := fmt.Appendf(nil, "node-%05d", (index+1+i)%crowd.Nodes)
		oldVersion := fmt.Appendf(nil, `"1%06d"`, index)
		newVersion := fmt.Appendf(nil, `"%07d"`, 3000000+i)
		pod := crowd.Item(template, index)
		pod = bytes.ReplaceAll(pod, oldNode, newNode)
		pod = bytes.ReplaceAll(pod, oldVersion, newVersion)
		if isProtobuf {
			watch = append(watch, protobuf.Event("MODIFIED", fakekube.Protobuf(pod))...)
		} else {
			watch = append(watch, jsonEvent("MODIFIED", string(pod))+"\n"...)
		}
	}
	return watch
}

func BenchmarkIndexOf150000Pods(b *testing.B) {
	s := NewStore[*Pod]()
	perNode := NumberBy(s, nodeKeyOf)
	for i := range 150000 {
		s.apply("ADDED", makePod(strconv.Itoa(i), "u", "1", "n"+strconv.Itoa(i%5000)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if perNode.Number(Key{Name: "n4711"}) != 30 {
			b.Fatal(perNode.Number(Key{Name: "n4711"}))
		}
	}
}
