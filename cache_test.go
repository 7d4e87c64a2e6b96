package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/wire"
)

// podLabels are the labels that pods have, in the ways that differ in memory. A crowd makes numbers of ###### and
// @@@@@.
var podLabels = []struct {
	name   string
	labels fakekube.Object
	most   float64 // bytes a pod
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

// countingManager has the controller count set up: so pods keep the labels by which they belong to Counts, and an
// index.
func countingManager(t testing.TB) *manager {
	m := newManager(&options{podEvents: "off", wire: "protobuf"}, nil, quietLog())
	c := &Controller{caches: map[cache]bool{}}
	c.queue = NewQueue(t.Context(), quietQueue[Key](time.Millisecond, time.Second))
	setUpCount(m, c)
	return m
}

// listed is a manager that has listed n pods with these labels.
func listed(t testing.TB, n int, labels fakekube.Object) *manager {
	m := countingManager(t)
	body := (&crowd{pods: n, nodes: n / 400, labels: labels}).body(true, false)
	l := m.pods.List()
	if _, err := m.pods.decoder.list(bytes.NewReader(body), true, l.Add); err != nil || l.n != n {
		t.Fatal(l.n, err)
	}
	l.Commit()
	return m
}

// heapBytes returns how many bytes make takes that are still in use.
func heapBytes(make func() any) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	made := make()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(made)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// In all: the pod, its place in the store, and in the index by which Counts find it.
func BenchmarkMemoryPerPod(b *testing.B) {
	const n = 400000
	for _, c := range podLabels {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(heapBytes(func() any { return listed(b, n, c.labels) })/n, "B/pod")
			}
		})
	}
}

// The most memory that the program has had, with 400,000 pods.
func BenchmarkPeakMemory(b *testing.B) {
	program := filepath.Join(b.TempDir(), "podcount")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, c := range podLabels {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				big := &crowd{pods: 400000, nodes: 1000, labels: c.labels}
				cmd := exec.Command(program, big.serve(b)...)
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				if total := <-big.patched; total != "400000" {
					b.Fatal(total)
				}
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
				cmd.Process.Kill()
				cmd.Wait()
				peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
				if peak == nil {
					b.Skip("memory is read from /proc")
				}
				kB, _ := strconv.Atoi(string(peak[1]))
				b.ReportMetric(float64(kB)/1000, "MB")
			}
		})
	}
}

// The server's names are exact. Under a schema that lets anything pass, a Count may have others beside them.
func TestNamesInJSONAreExact(t *testing.T) {
	d := newDecoder(&Kind[*Count]{Name: "Count", Lenient: true, New: func() *Count { return new(Count) }})
	c, err := d.parse([]byte(`{
		"metadata": {"name": "c", "Name": "x", "uid": "u", "UID": "x", "resourceVersion": "1", "resourceversion": "x", "generation": 3, "GENERATION": 4},
		"Metadata": {"name": "y"},
		"spec": {"name": "web", "NAME": "db", "count": 2, "COUNT": 3},
		"SPEC": {"name": "z"},
		"status": {"healthy": true, "Healthy": false, "count": 2, "cOUNT": 5, "observedGeneration": 3, "observedgeneration": 4},
		"ſtatuſ": {"count": 7}}`))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Key(), " ", c.UID(), " ", c.ResourceVersion(), " ", c.Generation, c.countSpec, c.Status)
	if want := "c u 1 3 {web 2 } {true 2 3}"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	c, err = d.parse([]byte(`{"metadata":{"name":"c","uid":"u","resourceVersion":"1"},"spec":{"name":"web","COUNT":3}}`))
	if err != nil || c.Invalid != "spec.count is missing, and must be a whole number, 0 or more" {
		t.Errorf("COUNT alone: %q, %v", c.Invalid, err)
	}
	for text, want := range map[string]string{
		`{"Metadata":{"resourceVersion":"5"},"items":[]}`:                  "not a list",
		`{"metadata":{"ResourceVersion":"5"},"items":[]}`:                  "not a list",
		`{"metadata":{"resourceVersion":"5"},"Items":[]}`:                  "not a list",
		`{"metadata":{"resourceVersion":"5"},"items":[{"Metadata":{}}]}`:   "has no metadata.name",
		`{"metadata":{"resourceVersion":5},"items":[]}`:                    "item.metadata.resourceVersion",
		`{"metadata":{"resourceVersion":"5"},"items":[{"metadata":"no"}]}`: "item.metadata",
	} {
		if _, err := newDecoder(podKind()).list(strings.NewReader(text), false, leave); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestFrameIsReadWhicheverOfItsFieldsComesFirst(t *testing.T) {
	pod := func(version string) string {
		return `{"spec":{"nodeName":"n1"},"metadata":{"name":"p","uid":"u","resourceVersion":"` + version + `"}}`
	}
	frames := `{"object":` + pod("1") + `,"type":"ADDED"}
		{"type":"MODIFIED","object":` + pod("2") + `}
		{"object": {"metadata":{"resourceVersion":"3"}}, "type" : "BOOKMARK", "Type": "ADDED", "OBJECT": 7}
		{"object":{"code":410,"reason":"Expired"},"type":"ERROR"}`
	var got []string
	read := func(text string) error {
		return newDecoder(podKind()).events(strings.NewReader(text), false, func(ev WatchEvent[*Pod]) error {
			if ev.Status != nil {
				got = append(got, fmt.Sprint(ev.Type, " ", ev.Status.Code, " ", ev.Status.Reason))
				return nil
			}
			got = append(got, fmt.Sprint(ev.Type, " ", ev.Object.Key(), " ", ev.Object.ResourceVersion(), " ", ev.Object.NodeName))
			return nil
		})
	}
	if err := read(frames); err != nil {
		t.Error(err)
	}
	want := "ADDED p 1 n1; MODIFIED p 2 n1; BOOKMARK  3 ; ERROR 410 Expired"
	if strings.Join(got, "; ") != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, text := range []string{
		`{"Type":"ADDED","object":` + pod("1") + `}`,
		`{"type":"ADDED","Object":` + pod("1") + `}`,
		`{"type":"ADDED","object":7}`,
		`[]`,
		`{"type":"ADDED"`,
	} {
		got = nil
		if err := read(text); !errors.As(err, new(wire.GarbageError)) || len(got) > 0 {
			t.Errorf("%s: %v, %q", text, err, got)
		}
	}
}

// hasNamesInOtherCases reports whether JSON has names that encoding/json takes for the ones that we read.
func hasNamesInOtherCases(data []byte) bool {
	folded := bytes.ToLower(data)
	for _, name := range []string{
		"metadata", "items", "namespace", "name", "uid", "resourceVersion", "continue", "labels", "spec", "nodeName",
	} {
		if bytes.Count(folded, []byte(strings.ToLower(name))) != bytes.Count(data, []byte(name)) {
			return true
		}
	}
	return bytes.ContainsAny(data, "\u017f\u212a") // which count as s and k
}

// No API server sends labels twice.
func TestLabelsTwiceInJSONAreReadAsByEncodingJSON(t *testing.T) {
	d := newDecoder(&Kind[*Pod]{Name: "Pod", Keep: []string{"app", "run"}, New: func() *Pod { return new(Pod) }})
	for _, labels := range []string{
		`"labels": {"app": "a"}, "labels": null`,
		`"labels": null, "labels": {"app": "a"}`,
		`"labels": {"app": "a"}, "labels": null, "labels": {"run": "r"}`,
		`"labels": {"app": "a"}, "labels": {"app": "b", "run": "r"}`,
		`"labels": {"app": "a", "run": "r"}, "labels": {"app": null}`,
	} {
		metadata := `{"name": "p", "uid": "u", "resourceVersion": "1", ` + labels + `}`
		p, err := d.parse([]byte(`{"metadata": ` + metadata + `}`))
		if err != nil {
			t.Fatal(err)
		}
		var want struct{ Labels map[string]string }
		if err := json.Unmarshal([]byte(metadata), &want); err != nil {
			t.Fatal(err)
		}
		if got := labelsOf(&p.Meta); !maps.Equal(got, want.Labels) {
			t.Errorf("%s: %v, want %v", labels, got, want.Labels)
		}
	}
}

// labelled is a pod in JSON, with these labels.
func labelled(name, version, labels string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":"u","resourceVersion":%q,"labels":{%s}}}`, name, version, labels)
}

func listOf(pods ...string) string {
	return `{"metadata":{"resourceVersion":"9"},"items":[` + strings.Join(pods, ",") + `]}`
}

func TestLabelsOfSeveralPodsAreSharedAndThoseOfOneStandInItsText(t *testing.T) {
	d := newDecoder(&Kind[*Pod]{Name: "Pod", Keep: []string{"app", "run", ""}, New: func() *Pod { return new(Pod) }})
	read := func(name, labels string) *Pod {
		p, err := d.parse([]byte(labelled(name, "7", labels)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first, second, third := read("a", `"app":"web","z":"1"`), read("b", `"app":"web"`), read("c", `"app":"web"`)
	own, again := read("d", `"run":"d","app":""`), read("d", `"app":"","run":"d"`)
	bare := read("e", `"z":"1"`)
	if second.labels != third.labels || second.labels.values == nil || strings.Contains(third.text, "web") {
		t.Error("labels of several pods are not shared")
	}
	if own.labels != again.labels || own.labels.values != nil || own.text != again.text {
		t.Error("labels that one pod has twice do not stand in its text")
	}
	if bare.labels != nil {
		t.Error("a pod has labels that are not kept")
	}
	for p, want := range map[*Pod]string{
		first: "map[app:web]", second: "map[app:web]", third: "map[app:web]", own: "map[app: run:d]", again: "map[app: run:d]", bare: "map[]",
	} {
		if got := describe(p); got != p.Key().String()+" u 7  "+want {
			t.Errorf("%s, want %s", got, want)
		}
		if _, ok := p.Label("z"); ok {
			t.Errorf("%s has a label that is not kept", p.Key())
		}
	}
	for range 2 {
		for i := range 3 * internLimit { // memory is bounded however many there are
			d.parse([]byte(labelled(fmt.Sprint("p", i), "7", fmt.Sprintf(`"app":"a%d"`, i/2))))
		}
	}
	for what, n := range map[string]int{
		"texts":       len(d.item.texts),
		"shared sets": len(d.sharedSets),
		"sets":        len(d.keySets),
		"labels":      len(d.seen),
	} {
		if n > internLimit {
			t.Errorf("%d %s are remembered", n, what)
		}
	}
}

func TestObjectWithTheMarkBetweenLabelsInItIsRefused(t *testing.T) {
	d := newDecoder(&Kind[*Pod]{Name: "Pod", Keep: []string{"app", "run"}, New: func() *Pod { return new(Pod) }})
	pod := labelled("a", "7", `"app":"x","run":"r"`)
	for _, part := range []string{`"x"`, `"a"`, `"7"`, `"u"`, `"ns"`} {
		odd := strings.Replace(pod, part, strings.TrimSuffix(part, `"`)+`\u0000y"`, 1)
		if p, err := d.parse([]byte(odd)); err == nil {
			t.Errorf("%s is read as %s", odd, describe(p))
		}
	}
	if _, err := d.parse([]byte(pod)); err != nil {
		t.Error(err)
	}
}

// Whether a pod shares its labels depends on what was read before: it is no change of the pod.
func TestListKnowsAPodWhoseLabelsAreSharedSinceTheLastOne(t *testing.T) {
	s := NewStore[*Pod]()
	s.versions = true
	kind := podKind()
	list := func(d *decoder[*Pod], pods ...string) []Delta[*Pod] {
		l := s.List()
		if _, err := d.list(strings.NewReader(listOf(pods...)), false, l.Add); err != nil {
			t.Fatal(err)
		}
		return l.Commit()
	}
	a, b := labelled("a", "1", `"app":"web"`), labelled("b", "1", `"app":"web"`)
	d := newDecoder(kind)
	list(d, a, b) // a has labels of its own, b shared ones
	for name, d := range map[string]*decoder[*Pod]{"one that knows them": d, "another": newDecoder(kind)} {
		if ds := list(d, b, a); len(ds) > 0 {
			t.Errorf("a list by %s has %d changes", name, len(ds))
		}
	}
	// A list can prove that the cache is wrong, even with the same version.
	if ds := list(d, a, labelled("b", "1", `"app":"db"`)); len(ds) != 1 || labelsOf(&ds[0].New.Meta)["app"] != "db" {
		t.Errorf("%d changes", len(ds))
	}
	if ds := list(d, a, labelled("b", "2", `"app":"db"`)); len(ds) != 1 {
		t.Errorf("%d changes of a version alone", len(ds))
	}
	s.versions = false
	if ds := list(d, labelled("a", "2", `"app":"web"`), labelled("b", "3", `"app":"db"`)); len(ds) != 0 {
		t.Errorf("%d changes of versions, which nobody asked for", len(ds))
	}
}

func TestIndexInANamespaceIsARecount(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	s := NewStore[*Pod]()
	s.indexIn = append(s.indexIn, func(p *Pod) string { v, _ := p.Label("app"); return v })
	d := newDecoder(podKind())
	for step := range 3000 {
		namespace, name := fmt.Sprint("ns", dice.IntN(3)), fmt.Sprint("p", dice.IntN(20))
		labels := fakekube.Object{"app": fmt.Sprint("a", dice.IntN(5))}
		if dice.IntN(4) == 0 {
			labels["app"] = "only-" + name
		}
		text, _ := json.Marshal(fakekube.Object{"metadata": fakekube.Object{"namespace": namespace, "name": name, "uid": "u", "resourceVersion": strconv.Itoa(step + 1), "labels": labels}})
		p, err := d.parse(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Apply([]string{"ADDED", "MODIFIED", "DELETED"}[dice.IntN(3)], p)
		recount := map[string]map[string]int{}
		for _, p := range s.All() {
			if recount[p.Key().Namespace] == nil {
				recount[p.Key().Namespace] = map[string]int{}
			}
			recount[p.Key().Namespace][labelsOf(&p.Meta)["app"]]++
		}
		if !reflect.DeepEqual(recount, s.countsIn) {
			t.Fatalf("step %d: %v, recount %v", step, s.countsIn, recount)
		}
	}
}

func TestPodTakesItsBytesAndLittleMore(t *testing.T) {
	if fewer(1) == 0 {
		t.Skip("memory is another with the race detector")
	}
	const n = 50000
	for _, c := range podLabels {
		if got := heapBytes(func() any { return listed(t, n, c.labels) }) / n; got > c.most {
			t.Errorf("%s: %.0f bytes a pod, want %.0f at most", c.name, got, c.most)
		} else {
			t.Logf("%s: %.0f bytes a pod", c.name, got)
		}
	}
}

// labelsIn is how a Selector looks into a map.
func labelsIn(labels map[string]string) func(key string) (value string, ok bool) {
	return func(key string) (string, bool) {
		value, ok := labels[key]
		return value, ok
	}
}

// labelsOf is all labels of an object that are kept.
func labelsOf(m *Meta) map[string]string {
	all := map[string]string{}
	if m.labels == nil {
		return all
	}
	for _, key := range m.labels.keys {
		all[key], _ = m.Label(key)
	}
	return all
}
