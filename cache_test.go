package main

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/objectmeta"
	"podcount/internal/api/wire"
	"podcount/internal/run/options"
	"podcount/internal/run/process"
	"podcount/internal/view/logging"
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
	listing := s.BeginList()
	addPods(listing, pods...)
	return listing.Commit()
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
	return &Pod{Meta{Metadata: draftOf(name, uid, version).Keep()}, node}
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
		listing := s.BeginList()
		addPods(listing, row.listed...)
		if row.answer != nil {
			s.ApplyAnswer(row.answer)
		}
		differences, changes := listing.CommitExact("50")
		testkit.WantEqual(t, row.name+": differences", describeDeltas(differences), row.differences)
		testkit.WantEqual(t, row.name+": changes", describeDeltas(changes), row.changes)
		if row.answer != nil && s.Get(Key{"ns", "a"}).ResourceVersion() != row.answer.ResourceVersion() {
			t.Errorf("%s: the store does not hold the answer", row.name)
		}
	}
}

func TestStoreChangesWhileItsNumbersAreRead(t *testing.T) {
	s := NewStore[*Pod]()
	byNode := CountBy(s, nodeNameOf)
	for i := range 3 * keysPerLock {
		s.Apply("ADDED", makePod(fmt.Sprint("p", i), "1", "10", fmt.Sprint("n", i)))
	}
	visited, visitedUntilTheChange := 0, 0
	for range byNode.All() {
		visited++
		if visited == 1 {
			go s.Apply("ADDED", makePod("late", "1", "11", "late"))
			for s.mu.TryRLock() { // It fails once Apply waits.
				s.mu.RUnlock()
				runtime.Gosched()
			}
		}
		if byNode.counts["late"] == 0 {
			visitedUntilTheChange++
		}
	}
	testkit.WantNumber(t, "numbers that were read until the change", visitedUntilTheChange, keysPerLock)
	testkit.WantBetween(t, "numbers that were read", visited, 3*keysPerLock, 3*keysPerLock+1)
}

func TestDroppedListChangesNothing(t *testing.T) {
	s := NewStore[*Pod]()
	byNode := CountBy(s, nodeNameOf)
	a := makePod("a", "1", "10", "x")
	b := makePod("b", "2", "11", "x")
	listPods(s, a)

	dropped := s.BeginList()
	addPods(dropped, a, b)

	testkit.WantNumber(t, "changes by the next list", len(listPods(s, a)), 0)
	testkit.WantNumber(t, "objects", s.Len(), 1)
	testkit.WantNumber(t, "objects in the index", byNode.Count("x"), 1)
}

func TestIndexesEqualARecountAfterAnyHistory(t *testing.T) {
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 1))
		s := NewStore[*Pod]()
		counts := CountBy(s, nodeNameOf)
		objects := IndexBy(s, nodeNameOf)
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
				found[node] = len(objects.Objects(node))
			}
			what := fmt.Sprintf("seed %d, step %d: ", seed, step)
			testkit.WantEqual(t, what+"CountIndex", counts.counts, recount)
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
		listing := s.BeginList()
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
		s.ApplyAnswer(randomPod(step + 2))
	case 2:
		s.Apply("DELETED", randomPod(step))
	default:
		eventType := []string{"ADDED", "MODIFIED"}[dice.IntN(2)]
		s.Apply(eventType, randomPod(step-dice.IntN(5)))
	}
}

func nodeNameOf(p *Pod) string { return p.NodeName }

func TestIndexByALabelEqualsARecount(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	s := NewStore[*Pod]()
	index := CountInNamespacesBy(s, func(p *Pod) string {
		app, _ := p.Label("app")
		return app
	})
	d := newDecoder(podKind("app"))
	for step := range 3000 {
		name := fmt.Sprint("p", dice.IntN(20))
		app := fmt.Sprint("a", dice.IntN(5))
		isUnique := dice.IntN(4) == 0 // Unique labels are not shared: see objectmeta.Packer.
		if isUnique {
			app = "only-" + name
		}
		text := labelled(name, strconv.Itoa(step+1), `"app":"`+app+`"`)
		namespace := fmt.Sprint("ns", dice.IntN(3))
		text = strings.Replace(text, `"ns"`, `"`+namespace+`"`, 1)
		p, err := d.parse(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		s.Apply([]string{"ADDED", "MODIFIED", "DELETED"}[dice.IntN(3)], p)

		recount := map[Key]int{}
		for _, p := range s.All() {
			recount[Key{p.Key().Namespace, p.Labels()["app"]}]++
		}
		counts := map[Key]int{}
		for namespace, inNamespace := range index.counts {
			for app := range inNamespace {
				key := Key{namespace, app}
				counts[key] = index.Count(key)
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
		testkit.WantEqual(t, "node after "+after, s.Get(Key{"ns", "a"}).NodeName, want)
	}
	s.Apply("ADDED", makePod("a", "1", "10", "old"))
	s.ApplyAnswer(makePod("a", "1", "12", "new"))
	wantNode("a patch", "new")
	s.ApplyAnswer(makePod("a", "1", "11", "older"))
	wantNode("the answer to an older patch", "new")
	s.ApplyAnswer(makePod("a", "2", "99", "other uid"))
	wantNode("a patch of another pod with this name", "new")
	s.Apply("MODIFIED", makePod("a", "1", "11", "late event"))
	wantNode("an event from before the patch", "new")
	s.Apply("DELETED", makePod("a", "1", "11", "late event"))
	testkit.WantNumber(t, "objects after a removal from before the patch", s.Len(), 1)

	s.Apply("DELETED", makePod("a", "1", "13", "x"))
	s.ApplyAnswer(makePod("a", "1", "14", "deleted"))
	testkit.WantNumber(t, "objects after an answer that arrived after the deletion", s.Len(), 0)
}

func TestPatchedObjectSurvivesAListThatBeganBefore(t *testing.T) {
	s := NewStore[*Pod]()
	s.Apply("ADDED", makePod("a", "1", "10", "x"))
	listing := s.BeginList()
	addPods(listing, makePod("a", "1", "10", "x"))
	s.ApplyAnswer(makePod("a", "1", "11", "new"))
	listing.Commit()
	if s.Get(Key{"ns", "a"}) == nil {
		t.Error("the list removed the patched object")
	}
}

func TestNoEventIsLostIfVersionsAreNoNumbers(t *testing.T) {
	s := NewStore[*Pod]()
	s.Apply("ADDED", makePod("a", "u", "odd-2", "n1"))
	changes := s.Apply("MODIFIED", makePod("a", "u", "odd-1", "n2"))
	testkit.WantNumber(t, "changes by MODIFIED", len(changes), 1)
	changes = s.Apply("DELETED", makePod("a", "u", "odd-3", "n2"))
	testkit.WantNumber(t, "changes by DELETED", len(changes), 1)
	testkit.WantNumber(t, "objects after DELETED", s.Len(), 0)
}

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
		if isNewerVersion(row.a, row.b) != row.isNewer {
			t.Errorf("isNewerVersion(%q, %q) is not %v", row.a, row.b, row.isNewer)
		}
	}
}

// Whether a pod shares its labels depends on the pods that were read before it, so that must not count as a change.
func TestListKnowsAPodWithSharedLabels(t *testing.T) {
	s := NewStore[*Pod]()
	s.reportsEveryVersion = true
	list := func(d *decoder[*Pod], pods ...string) []Delta[*Pod] {
		t.Helper()
		listing := s.BeginList()
		if _, err := d.list(strings.NewReader(listOf(pods...)), false, listing.Add); err != nil {
			t.Fatal(err)
		}
		return listing.Commit()
	}
	a := labelled("a", "1", `"app":"web"`)
	b := labelled("b", "1", `"app":"web"`)
	d := newDecoder(podKind("app"))
	list(d, a, b) // a has labels of its own, b has shared ones

	testkit.WantNumber(t, "changes in another order", len(list(d, b, a)), 0)
	testkit.WantNumber(t, "changes by a new decoder", len(list(newDecoder(podKind("app")), b, a)), 0)

	// A list can prove that the cache is wrong, even with the same version.
	changes := list(d, a, labelled("b", "1", `"app":"db"`))
	if len(changes) != 1 || changes[0].New.Labels()["app"] != "db" {
		t.Errorf("got %d changes from the label web to db, want 1", len(changes))
	}

	changes = list(d, a, labelled("b", "2", `"app":"db"`))
	testkit.WantNumber(t, "changes of only a version", len(changes), 1)
	s.reportsEveryVersion = false
	changes = list(d, labelled("a", "2", `"app":"web"`), labelled("b", "3", `"app":"db"`))
	testkit.WantNumber(t, "changes of only versions, which are not reported", len(changes), 0)
}

// labelled returns a pod with these labels in JSON.
func labelled(name, version, labels string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"u","resourceVersion":%q,"labels":{%s}}}`,
		name, version, labels)
}

// listOf returns a list of pods in JSON.
func listOf(pods ...string) string {
	return `{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[` + strings.Join(pods, ",") + `]}`
}

// podKind returns a kind of pods that keeps the labels with these keys.
func podKind(labels ...string) *Kind[*Pod] {
	return &Kind[*Pod]{
		Name:     "Pod",
		API:      "/api/v1",
		Resource: "pods",
		Labels:   labels,
		New:      func() *Pod { return new(Pod) },
	}
}

// A cluster can have 150,000 pods.
func TestObjectsAreSmall(t *testing.T) {
	testkit.WantNumber(t, "bytes of a Meta", int(reflect.TypeFor[Meta]().Size()), 32)
	testkit.WantNumber(t, "bytes of a Pod", int(reflect.TypeFor[Pod]().Size()), 48)
}

func TestMemoryForEachPod(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("the race detector changes the use of memory")
	}
	const n = 50000
	for _, row := range podLabels {
		t.Run(row.name, func(t *testing.T) {
			got := heapBytes(func() any { return managerWithPods(t, n, row.labels) }) / n
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

// managerWithPods returns a manager that has listed n pods with these labels.
func managerWithPods(t testing.TB, n int, labels fakekube.Object) *manager {
	m := countingManager(t)
	crowd := &suite.Crowd{Pods: n, Nodes: n / 400, Labels: labels}
	listing := m.pods.BeginList()
	_, err := m.pods.decoder.list(bytes.NewReader(crowd.Body(true, false)), true, listing.Add)
	if err != nil || listing.count != n {
		t.Fatalf("listed %d pods with the error %v, want %d pods", listing.count, err, n)
	}
	listing.Commit()
	return m
}

// countingManager returns a manager with the controller count. Its pods keep the labels that Counts select by, and are
// indexed by them.
func countingManager(t testing.TB) *manager {
	m := idleManager(t, &options.Options{Wire: "protobuf"})
	setUpCount(m, m.idleController())
	return m
}

// idleManager returns a manager without a client, which is never started.
func idleManager(t testing.TB, o *options.Options) *manager {
	lifetime := process.NewLifetime(t.Context(), 0)
	return newManager(o, nil, lifetime, newTelemetry(&logging.Outputs{Log: quietLog()}, nil))
}

// idleController returns a controller that is ready for its Setup.
func (m *manager) idleController() *Controller {
	c := &Controller{Name: "test"}
	m.prepare(c)
	return c
}

// heapBytes returns the size of the value that build returns, and of everything that it refers to.
func heapBytes(build func() any) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	value := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(value)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

func TestListOfKnownPodsAllocatesAlmostNothing(t *testing.T) {
	f := fakekube.New()
	fixture.AddPods(f, 1000)
	body := podList(f, wire.Protobuf)
	s := NewStore[*Pod]()
	d := newDecoder(podKind("app"))
	list := func() {
		listing := s.BeginList()
		_, err := d.list(bytes.NewReader(body), true, listing.Add)
		if err != nil || listing.count != 1000 {
			t.Fatalf("listed %d pods with the error %v, want 1000 pods", listing.count, err)
		}
		changes := listing.Commit()
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

func TestDroppedLabelsTakeNoMemory(t *testing.T) {
	many := fakekube.Object{"app": "x"}
	for i := range 1000 {
		many["other-"+strconv.Itoa(i)] = "y"
	}
	text, _ := json.Marshal(fakekube.Object{
		"metadata": fakekube.Object{"name": "p", "uid": "u", "resourceVersion": "1", "labels": many},
	})
	d := newDecoder(podKind("app"))
	readPod := func(app string) *Pod {
		p, err := d.parse(bytes.NewReader(bytes.Replace(text, []byte(`"app":"x"`), []byte(`"app":"`+app+`"`), 1)))
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, "labels", p.Labels(), map[string]string{"app": app})
		return p
	}
	readPod("first") // This fills the decoder's own buffers.
	const n = 100
	got := heapBytes(func() any {
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
	d := newDecoder(&Kind[*Count]{Name: "Count", Lenient: true, New: func() *Count { return new(Count) }})
	c, err := d.parse(strings.NewReader(`{
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
	got := fmt.Sprint(c.Key(), " ", c.UID(), " ", c.ResourceVersion(), " ", c.Generation, c.countSpec, c.Status)
	testkit.WantEqual(t, "Count", got, "c u 1 3 {web 2 } {true 2 3}")

	c, err = d.parse(strings.NewReader(`{
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
	kind := newCountKind()
	huge := strings.Repeat("7", 70_000)
	c, err := newDecoder(&kind).parse(strings.NewReader(`{
		"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
		"spec": {"name": "` + huge + `", "count": ` + huge + `, "nodeName": "` + huge + `"},
		"status": {"healthy": ` + huge + `, "count": ` + huge + `, "observedGeneration": ` + huge + `}
	}`))
	testkit.WantError(t, "the Count", err, "")
	testkit.WantEqual(t, "App", c.App, "")
	testkit.WantText(t, c.Invalid, `spec.name is "777`)
	testkit.WantBetween(t, "bytes of Invalid", len(c.Invalid), 1, 200)
	testkit.WantEqual(t, "Status", c.Status, countStatus{})

	c, err = newDecoder(&kind).parse(strings.NewReader(`{
		"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
		"spec": {"name": "web", "count": ` + huge + `}
	}`))
	testkit.WantError(t, "the Count with a name", err, "")
	testkit.WantText(t, c.Invalid, `spec.count is 777`)

	type fields struct{ Spec struct{ Count int } }
	object := JSONKind[fields]("Any", "/apis/example.com/v1", "anys")
	o, err := newDecoder(&object).parse(strings.NewReader(`{
		"metadata": {"name": "c", "uid": "u", "resourceVersion": "1"},
		"spec": {"count": ` + huge + `}
	}`))
	testkit.WantError(t, "the JSONObject", err, "")
	testkit.WantText(t, o.Invalid, "json: cannot unmarshal number 777")
	testkit.WantBetween(t, "bytes of Invalid", len(o.Invalid), 1, 600)
}

func TestPodIsNotOnANodeThatCannotExist(t *testing.T) {
	kind := newPodKind()
	for length, want := range map[int]int{253: 253, 254: 0, 70_000: 0} {
		p, err := newDecoder(&kind).parse(strings.NewReader(`{
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
		_, err := newDecoder(podKind("app")).list(strings.NewReader(row.list), false, keepNone)
		testkit.WantError(t, row.list, err, row.want)
	}
}

// keepNone is a callback for decoder.list that keeps no object.
func keepNone(*Pod, objectmeta.Draft) (kept bool, err error) { return false, nil }

func TestFieldsOfAFrameMayComeInAnyOrder(t *testing.T) {
	pod := func(version string) string { return labelled("p", version, "") }
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
	err = newDecoder(podKind("app")).events(strings.NewReader(watch), false, recordEvent)
	return events, err
}

func TestBadFramesAreGarbage(t *testing.T) {
	pod := labelled("p", "1", "")
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
	d := newDecoder(podKind("app", "run", ""))
	for _, row := range []struct{ labels, want string }{
		{`"app":"web","z":"1"`, "map[app:web]"},
		{`"app":"web"`, "map[app:web]"},
		{`"run":"d","app":""`, "map[app: run:d]"},
		{`"":"x"`, "map[:x]"},
		{`"z":"1"`, "map[]"},
		{``, "map[]"},
	} {
		p, err := d.parse(strings.NewReader(labelled("a", "7", row.labels)))
		testkit.WantError(t, row.labels, err, "")
		testkit.WantEqual(t, "pod with "+row.labels, describe(p), "ns/a u 7  "+row.want)
	}
}

// describe returns everything that is known of a pod: key, uid, version, node and labels.
func describe(p *Pod) string {
	return fmt.Sprintf("%s %s %s %s %v", p.Key(), p.UID(), p.ResourceVersion(), p.NodeName, p.Labels())
}

// No API server sends labels twice, but the fuzz tests do.
func TestLabelsTwiceInJSONAreReadAsByEncodingJSON(t *testing.T) {
	d := newDecoder(podKind("app", "run"))
	for _, labels := range []string{
		`"labels": {"app": "a"}, "labels": null`,
		`"labels": null, "labels": {"app": "a"}`,
		`"labels": {"app": "a"}, "labels": null, "labels": {"run": "r"}`,
		`"labels": {"app": "a"}, "labels": {"app": "b", "run": "r"}`,
		`"labels": {"app": "a", "run": "r"}, "labels": {"app": null}`,
	} {
		metadata := `{"name": "p", "uid": "u", "resourceVersion": "1", ` + labels + `}`
		p, err := d.parse(strings.NewReader(`{"metadata": ` + metadata + `}`))
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ Labels map[string]string }
		if err := json.Unmarshal([]byte(metadata), &want); err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, labels, fmt.Sprint(p.Labels()), fmt.Sprint(want.Labels))
	}
}

func TestObjectWithAZeroByteIsRefused(t *testing.T) {
	d := newDecoder(podKind("app", "run"))
	pod := labelled("a", "7", `"app":"x","run":"r"`)
	_, err := d.parse(strings.NewReader(pod))
	testkit.WantError(t, "a pod without a zero byte", err, "")
	for _, part := range []string{`"x"`, `"a"`, `"7"`, `"u"`, `"ns"`} {
		odd := strings.Replace(pod, part, strings.TrimSuffix(part, `"`)+`\u0000y"`, 1)
		_, err := d.parse(strings.NewReader(odd))
		testkit.WantError(t, odd, err, "a name contains a slash, or a field contains a zero byte")
	}
}

func TestBadListsAreErrorsThatNameThePlace(t *testing.T) {
	const (
		begin = `{"metadata":{"resourceVersion":"5"},"items":`
		item  = `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}`
		after = "items: item 1, which follows n/a: after byte 118: "
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
		_, err := newDecoder(podKind()).list(strings.NewReader(row.text), false, keepNone)
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
	meta, err := newDecoder(podKind()).list(strings.NewReader(list), false, countItem)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantNumber(t, "items", items, 2)
	testkit.WantEqual(t, "metadata", meta, wire.ListMeta{ResourceVersion: "5", Continue: "c"})
}

func TestItemsMayBeNull(t *testing.T) {
	list := strings.NewReader(`{"metadata":{"resourceVersion":"5"},"items":null}`)
	_, err := newDecoder(podKind()).list(list, false, keepNone)
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
			listOf(podWithEverything, barePod("b1")),
			true,
			[]string{"space/a-long-name u1 1 n1 map[app:x tier:]", "b1 u2 2  map[]"},
		},
		{
			listOf(barePod("b2"), podWithNullLabels),
			false,
			[]string{"b2 u2 2  map[]", "c u3 3  map[]"},
		},
	}
	d := newDecoder(podKind("app", "tier"))
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
	kind := newCountKind()
	var got []Count
	take := func(count *Count, _ objectmeta.Draft) (kept bool, err error) {
		got = append(got, *count)
		return false, nil // The decoder reuses the object.
	}
	_, err := newDecoder(&kind).list(strings.NewReader(list), false, take)
	testkit.WantError(t, "list", err, "")
	testkit.WantNumber(t, "Counts", len(got), 2)
	testkit.WantText(t, got[0].Invalid, "spec.count is -1")
	testkit.WantEqual(t, "the second Count", got[1], Count{countSpec: countSpec{App: "y", Want: 2}})
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
	return decodedBy(newDecoder(kind), bytes.NewReader(body), isProtobuf, true)
}

// decodedBy is decoded for a given decoder and any reader. The decoder may reuse the pods unless keepsObjects is true.
func decodedBy(
	d *decoder[*Pod], r io.Reader, isProtobuf, keepsObjects bool,
) (pods []string, meta wire.ListMeta, err error) {
	describeNext := func(p *Pod, metadata objectmeta.Draft) (kept bool, err error) {
		p.Metadata = metadata.Keep()
		pods = append(pods, describe(p))
		return keepsObjects, nil
	}
	meta, err = d.list(r, isProtobuf, describeNext)
	return pods, meta, err
}

// recording returns the body of an answer that was recorded from a real API server.
func recording(t testing.TB, name string) []byte {
	body, err := os.ReadFile("testdata/transcripts/" + name)
	if err != nil {
		t.Fatal(err)
	}
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
			err := newDecoder(podKind("app")).events(bytes.NewReader(recording(t, row.file)), true, recordEvent)
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
		notString = "the field should be a string, but is a varint"
		notObject = "the field should be a message, but is a varint"
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
			"field 2, after byte 15: the field's length is 9223372036854775808",
		},
		{
			"the greatest length",
			magic + string(tag(2, bytesType)) + string(varint(1<<64-1)),
			"field 2",
		},
		{
			"a list that never comes",
			magic + string(tag(2, bytesType)) + string(varint(1<<40)),
			"field 2, after byte 11: unexpected EOF",
		},

		// The list.
		{"a group", list(tag(2, groupType)), "field 2.2, after byte 23: the field is of unknown wire type 3"},
		{"a fixed field without bytes", list(tag(4, fixed64Type)), "the field's length is 8" + tooLong},
		{
			"an item of 1 TB",
			list(tag(2, bytesType), varint(1<<40)),
			"field 2.2, after byte 29: the field's length is 1099511627776" + tooLong,
		},
		{
			"an item beyond the list",
			list(tag(2, bytesType), varint(9)),
			"field 2.2, after byte 24: the field's length is 9" + tooLong,
		},
		{"an item of 9 MB", list(item(bytes.Repeat([]byte{0x92, 1, 0}, 3<<20))), "item 0: field 2.2"},
		{"an item that is a number", list(tag(2, varintType), varint(9)), "field 2.2, after byte 24: " + notObject},

		// An item.
		{
			"metadata beyond the item",
			list(tag(2, bytesType), varint(2), tag(1, bytesType), varint(9)),
			"item 0: field 2.2.1, after byte 26: the field's length is 9" + tooLong,
		},
		{
			"metadata that is a number",
			list(tag(2, bytesType), varint(2), tag(1, varintType), varint(9)),
			"item 0: field 2.2.1, after byte 26: " + notObject,
		},
		{"a name that is a number", list(item(number)), "item 0: field 2.2.1.1, after byte 28: " + notString},
		{
			"a name that is not UTF-8",
			list(item(notUTF8)),
			"item 0: field 2.2.1.1, after byte 28: a string of 2 bytes is not UTF-8",
		},
		{
			"a name of 1 MB",
			list(item(tag(1, bytesType), varint(1<<20), bytesOf(1<<20))),
			"item 0: field 2.2.1.1, after byte 36: a string of 1048576 bytes is too long",
		},
		{
			"a label beyond its map",
			list(item(longLabel)),
			"item 0: field 2.2.1.11.1, after byte 30: the field's length is 99" + tooLong,
		},
		{
			"a field of metadata that Kubernetes does not have",
			list(tag(2, bytesType), varint(5), tag(1, bytesType), varint(3), tag(1011, bytesType), varint(9)),
			"item 0: field 2.2.1.1011, after byte 29: the field's length is 9" + tooLong,
		},
		{"no name", list(item()), `item 0: Pod "" has no metadata.name`},
		{"the second has no name", list(item(good), item()), `item 1: Pod "" has no metadata.name`},
		{"cut in an item", list(item(good))[:31], "item 0: field 2.2.1.5, after byte 31: unexpected EOF"},
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
			list := row.encode(listOf(largest, podOfSize(medium), podOfSize(1), podOfSize(medium)))
			got, _, err := decoded(list, row.isProtobuf, podKind("app"))
			testkit.WantError(t, "list of large objects", err, "")
			testkit.WantNumber(t, "large objects", len(got), 4)

			list = row.encode(listOf(podOfSize(1), podOfSize(row.limit)))
			got, _, err = decoded(list, row.isProtobuf, podKind("app"))
			testkit.WantError(t, "list with an object that is too large", err, "item 1, which follows n/big: ")
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
func readThreeFrames(object []byte, isProtobuf bool) (n int, err error) {
	frame := []byte(jsonEvent("ADDED", string(object)) + "\n")
	if isProtobuf {
		frame = protobuf.Event("ADDED", object)
	}
	countEvent := func(WatchEvent[*Pod]) error {
		n++
		return nil
	}
	err = newDecoder(podKind("app")).events(bytes.NewReader(bytes.Repeat(frame, 3)), isProtobuf, countEvent)
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
			src, err := gzip.NewReader(bytes.NewReader(bomb(row.beginning, 50<<20)))
			if err != nil {
				t.Fatal(err)
			}
			allocated := allocatedBytes(func() {
				_, err = newDecoder(podKind("app")).list(src, row.isProtobuf, keepNone)
			})
			testkit.WantError(t, "list", err, row.want)
			// The buffer grows to 32 MB by doubling, so all its sizes together take up to 64 MB.
			testkit.WantBetween(t, "allocated MB", allocated>>20, 0, 80)
		})
	}
}

// bomb returns a beginning and then size bytes that compress to almost nothing, compressed by gzip.
func bomb(beginning string, size int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, beginning)
	chunk := bytes.Repeat([]byte("a"), 1<<20)
	for ; size > 0; size -= len(chunk) {
		z.Write(chunk)
	}
	z.Close()
	return b.Bytes()
}

func TestDecompressionBombIsNotHeldByTheClient(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("takes long under the race detector")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", wire.JSON)
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb(`{"metadata":{"name":"`, 8<<20))
	}))
	defer server.Close()
	base, _ := url.Parse(server.URL)
	config := &kubeconfig.Config{Server: base, Credential: noCredential}
	client := newClient(&options.Options{}, config, nil, newTelemetry(&logging.Outputs{Log: quietLog()}, nil))
	defer client.Close()
	var answer json.RawMessage
	err := client.Send(t.Context(), kube.Request{Method: http.MethodGet, Path: "/api/v1/nodes/n"}, testkit.Into(&answer))
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
	store := NewStore[*JSONObject[widget]]()
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
func listWidgets(t *testing.T, store *Store[*JSONObject[widget]], widgets ...string) (kept int) {
	t.Helper()
	kind := JSONKind[widget]("Widget", "/apis/example.com/v1", "widgets")
	list := `{"metadata":{"resourceVersion":"9"},"items":[` + strings.Join(widgets, ",") + `]}`
	listing := store.BeginList()
	add := func(obj *JSONObject[widget], metadata objectmeta.Draft) (bool, error) {
		isKept, err := listing.Add(obj, metadata)
		if isKept {
			kept++
		}
		return isKept, err
	}
	if _, err := newDecoder(&kind).list(strings.NewReader(list), false, add); err != nil {
		t.Fatal(err)
	}
	listing.Commit()
	return kept
}

func TestJSONObjectThatIsKnownIsNotKeptAgain(t *testing.T) {
	const spec = `{"replicas":3,"zones":["a","b"]}`
	store := NewStore[*JSONObject[widget]]()
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
			kind := JSONKind[widget]("Widget", "/apis/example.com/v1", "widgets")
			store := NewStore[*JSONObject[widget]]()
			listWidgets(t, store, widgetJSON("w", "1", `{"replicas":3,"zones":["a"]}`))
			now, err := newDecoder(&kind).parse(strings.NewReader(widgetJSON("w", "2", row.spec)))
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "changes", len(store.Apply("MODIFIED", now)), row.want)
		})
	}
}

func TestFieldSelectorsAreAcceptedAsByTheServer(t *testing.T) {
	selectors := readSelectors(t)
	for _, text := range selectors.FieldSelectorsAccepted {
		if err := objectmeta.CheckFieldSelector(text, "pods", podFields); err != nil {
			t.Errorf("field selector %q: %v", text, err)
		}
	}
	for _, text := range selectors.FieldSelectorsRefused {
		if err := objectmeta.CheckFieldSelector(text, "pods", podFields); err == nil {
			t.Errorf("field selector %q is accepted", text)
		}
	}
}

// selectorsOfServers holds the selectors that a real API server (v1.35) accepts, and those that it refuses with a 400.
// "make e2e" tries them on your server.
type selectorsOfServers struct {
	LabelSelectorsAccepted, LabelSelectorsRefused []string
	FieldSelectorsAccepted, FieldSelectorsRefused []string
}

func readSelectors(t testing.TB) (s selectorsOfServers) {
	t.Helper()
	text, err := os.ReadFile("testdata/selectors.json")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// FuzzDecodeList checks that a list that is accepted has the objects that encoding/json finds in it.
func FuzzDecodeList(f *testing.F) {
	addRecordings(f, "list-*.txt")
	f.Add([]byte(`{"metadata":{"resourceVersion":"5"},"items":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []*Pod
		keepAll := func(p *Pod, metadata objectmeta.Draft) (kept bool, err error) {
			p.Metadata = metadata.Keep()
			got = append(got, p)
			return true, nil
		}
		meta, err := newDecoder(podKind("app")).list(bytes.NewReader(data), false, keepAll)
		if err != nil || mayDifferFromEncodingJSON(data, len(got)) {
			return
		}
		wantMeta, want := unmarshalList(t, data)
		if len(got) != len(want) || meta != wantMeta {
			t.Fatalf("%q: %d objects, %+v; want %d, %+v", data, len(got), meta, len(want), wantMeta)
		}
		for i, p := range got {
			m := want[i].Metadata
			isEqual := p.Key() == Key{m.Namespace, m.Name} &&
				p.UID() == m.UID &&
				p.ResourceVersion() == m.ResourceVersion &&
				p.NodeName == want[i].Spec.NodeName &&
				p.Labels()["app"] == m.Labels["app"]
			if !isEqual || p.UID() == "" {
				t.Fatalf("%q: item %d is %+v, want %+v", data, i, p, want[i])
			}
		}
	})
}

// addRecordings adds the bodies of recorded answers to the seeds of a fuzz test.
func addRecordings(f *testing.F, pattern string) {
	files, _ := filepath.Glob("testdata/transcripts/" + pattern)
	for _, file := range files {
		f.Add(recording(f, filepath.Base(file)))
	}
}

// mayDifferFromEncodingJSON reports whether a list of n objects has names that encoding/json reads differently: with
// escapes, in another case, or twice.
func mayDifferFromEncodingJSON(list []byte, n int) bool {
	return bytes.ContainsRune(list, '\\') ||
		hasNamesInOtherCases(list) ||
		bytes.Count(list, []byte(`"items"`)) != 1 ||
		bytes.Count(list, []byte(`"metadata"`)) != 1+n
}

// hasNamesInOtherCases reports whether JSON has names that differ only in case from those that the decoder reads.
// encoding/json reads them too.
func hasNamesInOtherCases(data []byte) bool {
	folded := bytes.ToLower(data)
	for _, name := range []string{
		"metadata", "items", "namespace", "name", "uid", "resourceVersion", "continue", "labels", "spec", "nodeName",
	} {
		if bytes.Count(folded, []byte(strings.ToLower(name))) != bytes.Count(data, []byte(name)) {
			return true
		}
	}
	return bytes.ContainsAny(data, "\u017f\u212a") // Unicode folds these to s and k
}

// unmarshalledPod is a pod as encoding/json reads it.
type unmarshalledPod struct {
	Metadata struct {
		Namespace, Name, UID, ResourceVersion string
		Labels                                map[string]string
	}
	Spec struct{ NodeName string }
}

// unmarshalList reads a list of pods with encoding/json.
func unmarshalList(t *testing.T, data []byte) (meta wire.ListMeta, pods []unmarshalledPod) {
	t.Helper()
	var fields map[string]json.RawMessage
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&fields)
	if err == nil {
		err = json.Unmarshal(fields["items"], &pods)
	}
	if err == nil {
		err = json.Unmarshal(fields["metadata"], &meta)
	}
	if err != nil {
		t.Fatalf("%q is accepted, but encoding/json refuses it: %v", data, err)
	}
	return meta, pods
}

// FuzzDecodeProtobuf checks that protobuf never causes a panic, and that its result does not depend on the size of the
// reads.
func FuzzDecodeProtobuf(f *testing.F) {
	addRecordings(f, "*.pb")
	for _, row := range hostileLists() {
		f.Add([]byte(row.body[:min(len(row.body), 1000)]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, wholeMeta, wholeErr := decoded(data, true, podKind("app"))
		oneByOne := iotest.OneByteReader(bytes.NewReader(data))
		bytewise, bytewiseMeta, bytewiseErr := decodedBy(newDecoder(podKind("app")), oneByOne, true, true)
		isEqual := slices.Equal(whole, bytewise) &&
			wholeMeta == bytewiseMeta &&
			fmt.Sprint(wholeErr) == fmt.Sprint(bytewiseErr)
		if !isEqual {
			t.Fatalf("%q: %q, %v; byte by byte %q, %v", data, whole, wholeErr, bytewise, bytewiseErr)
		}
		wantSameEventsBytewise(t, data, true)
		wire.ParseStatus(data, true)
	})
}

// FuzzProtobufIsJSON checks that an object is the same in protobuf and in JSON, and that unknown fields in protobuf
// change nothing.
func FuzzProtobufIsJSON(f *testing.F) {
	f.Add("web-0", "default", "0ec2e3b2-7f91-43e4-b6d9-308f8d87f73d", "217", "app", "nginx", "node-1",
		[]byte("\x1a\x00"))
	f.Add("node-1", "", "u", "9", "node-role.kubernetes.io/control-plane", "", "", []byte{})
	f.Fuzz(func(t *testing.T, name, namespace, uid, version, label, value, node string, unknown []byte) {
		for _, s := range []string{name, namespace, uid, version, label, value, node} {
			if !utf8.ValidString(s) || len(s) > 1000 {
				return // JSON cannot express the first, and protobuf refuses the second
			}
		}
		meta := fakekube.Object{
			"name":            name,
			"namespace":       namespace,
			"uid":             uid,
			"resourceVersion": version,
			"labels":          fakekube.Object{label: value, "app": "x"},
		}
		pod := fakekube.Object{"metadata": meta, "spec": fakekube.Object{"nodeName": node}}
		list, _ := json.Marshal(fakekube.Object{
			"kind":     "PodList",
			"metadata": fakekube.Object{"resourceVersion": "5"},
			"items":    []any{pod},
		})

		kind := podKind("app", label)
		want, wantMeta, wantErr := decoded(list, false, kind)
		got, gotMeta, err := decoded(fakekube.Protobuf(list), true, kind)
		if !slices.Equal(got, want) || (err == nil) != (wantErr == nil) || err == nil && gotMeta != wantMeta {
			t.Fatalf("%s: %q, %v; in JSON %q, %v", list, got, err, want, wantErr)
		}

		padded := protobufListWithUnknownFields(pod, unknown)
		again, _, err := decoded(padded, true, kind)
		if !slices.Equal(got, again) {
			t.Fatalf("%q: %q, %v, want %q", padded, again, err, got)
		}
	})
}

// protobufListWithUnknownFields returns a list in protobuf whose only item has fields that no kind has.
func protobufListWithUnknownFields(item fakekube.Object, value []byte) []byte {
	var object, list, envelope protobuf.Message
	object.Bytes(99, value)
	object = append(object, protobuf.Object(item)...)
	object.Bytes(60, value)
	object.Int(61, len(value))
	list.Bytes(1, []byte{0x12, 1, '5'})
	list.Bytes(2, object)
	envelope.Bytes(1, []byte("\x12\x07PodList"))
	envelope.Bytes(2, list)
	return append([]byte("k8s\x00"), envelope...)
}

// FuzzDecodeEvents checks that every event of a watch in JSON is complete, and that the events do not depend on the
// size of the reads.
func FuzzDecodeEvents(f *testing.F) {
	addRecordings(f, "watch-*.txt")
	f.Fuzz(func(t *testing.T, data []byte) { wantSameEventsBytewise(t, data, false) })
}

// wantSameEventsBytewise fails the test if a watch has an incomplete event, if it has other events when it is read byte
// by byte, or if it ends with another error than a GarbageError.
func wantSameEventsBytewise(t *testing.T, data []byte, isProtobuf bool) {
	t.Helper()
	read := func(r io.Reader) (events []string, err error) {
		err = newDecoder(podKind("app")).events(r, isProtobuf, func(event WatchEvent[*Pod]) error {
			if !isComplete(event) {
				t.Fatalf("%q: an incomplete event %+v", data, event)
			}
			events = append(events, describeEvent(event))
			return nil
		})
		return events, err
	}
	whole, err := read(bytes.NewReader(data))
	bytewise, bytewiseErr := read(iotest.OneByteReader(bytes.NewReader(data)))
	if !slices.Equal(whole, bytewise) || (err == nil) != (bytewiseErr == nil) {
		t.Fatalf("%q: %q, %v; byte by byte %q, %v", data, whole, err, bytewise, bytewiseErr)
	}
	if err != nil && !errors.As(err, new(wire.GarbageError)) {
		t.Fatalf("%q: got the error %v, want a GarbageError", data, err)
	}
}

// isComplete reports whether an event has everything that the reflector needs.
func isComplete(event WatchEvent[*Pod]) bool {
	switch event.Type {
	case "ERROR":
		return event.Status != nil
	case "BOOKMARK":
		return event.Object.ResourceVersion() != ""
	case "ADDED", "MODIFIED", "DELETED":
		return event.Object.Key().Name != "" && event.Object.UID() != ""
	default:
		return false
	}
}

// BenchmarkMemoryPerPod measures the memory for a pod, its place in the store, and its place in the index of Counts.
func BenchmarkMemoryPerPod(b *testing.B) {
	const n = 400000
	for _, c := range podLabels {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(heapBytes(func() any { return managerWithPods(b, n, c.labels) })/n, "B/pod")
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
				CountBy(s, nodeNameOf)
				listing := s.BeginList()
				_, err := newDecoder(kind).list(bytes.NewReader(data), format.isProtobuf, listing.Add)
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
			d := newDecoder(kind)
			s := NewStore[*Pod]()
			CountBy(s, nodeNameOf)
			list := func() (changes int) {
				listing := s.BeginList()
				_, err := d.list(bytes.NewReader(data), format.isProtobuf, listing.Add)
				if err != nil {
					b.Fatal(err)
				}
				return len(listing.Commit())
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
	c := m.idleController()
	controller := newPodCountController(m, c)
	go discardKeys(c)
	d := newDecoder(podKind())
	listing := m.pods.BeginList()
	if _, err := d.list(bytes.NewReader(crowd.Body(true, true)), true, listing.Add); err != nil {
		b.Fatal(err)
	}
	listing.Commit()

	const n = 5000
	watch := moves(crowd, n, isProtobuf)
	addKeys := func(event WatchEvent[*Pod]) error {
		for _, delta := range m.pods.Apply(event.Type, event.Object) {
			c.queue.Add(controller.podKeys(delta)...)
		}
		return nil
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%n > 0 {
			continue // the first of n iterations has processed n events
		}
		if err := d.events(bytes.NewReader(watch), isProtobuf, addKeys); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// discardKeys processes the keys of a controller's queue without doing anything, until the queue ends.
func discardKeys(c *Controller) {
	for {
		key, ok := c.queue.Get()
		if !ok {
			return
		}
		c.queue.Done(key, Result{}, nil)
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
	byNode := CountBy(s, nodeNameOf)
	for i := range 150000 {
		s.Apply("ADDED", makePod(strconv.Itoa(i), "u", "1", "n"+strconv.Itoa(i%5000)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if byNode.Count("n4711") != 30 {
			b.Fatal(byNode.Count("n4711"))
		}
	}
}
