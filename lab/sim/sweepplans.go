package sim

import (
	"fmt"
	"strings"
	"time"

	"podcount/lab/fixture"
)

// The sweep lets one process of the program live the same short life again and again, each time with one fault at one
// place: a certain request, and perhaps a certain byte of its answer.

// sweptStep makes something happen in a swept life.
type sweptStep func(*sweptLife)

// stage is a part of a swept life.
type stage struct {
	name string

	// steps are what happens in the stage, with a pause after each.
	steps []sweptStep

	// lasts is how long the stage lasts after its steps, at least.
	lasts time.Duration

	// isIdle means that nothing changes for so long that the same requests and bookmarks come again and again. Of each
	// class, only the first request is swept. A watch is cut after mostBookmarks bookmarks at the latest.
	isIdle bool
}

// mostBookmarks is the number of bookmarks after which an idle watch is cut at the latest.
const mostBookmarks = 2

// stepPause is the pause after each step of a stage. It is longer than the interval, so that the writes that a step
// leads to do not mix with those of the next one.
const stepPause = 2 * time.Second

// lifePlan is what happens in a swept life.
type lifePlan struct {
	name              string
	args              []string // more flags
	isWithoutElection bool
	stages            []stage          // calmStage and stopStage follow
	sweeps            func(place) bool // reports whether each fault shall strike at a place
}

// sweptLives returns the lives that the sweep repeats.
func sweptLives() []lifePlan { return []lifePlan{mainLife(), jsonLife(), idleLife(), hourLife()} }

// mainLife is a life in which everything happens once.
func mainLife() lifePlan {
	return lifePlan{
		name: "everything once",
		stages: []stage{
			startStage("start"),
			{name: "pods", steps: podSteps(), lasts: stepPause},
			{name: "nodes", steps: nodeSteps(), lasts: stepPause},
			{name: "counts", steps: countSteps(), lasts: stepPause},
			{name: "expired", steps: expirySteps(), lasts: stepPause},
			{name: "token", steps: tokenSteps(), lasts: stepPause},
			lastStage(),
		},
		sweeps: func(p place) bool { return p.stage != calmStage },
	}
}

// jsonLife is a life in which pods and nodes come in JSON. Only the requests that read them differ from those of other
// lives, so only these are swept.
func jsonLife() lifePlan {
	return lifePlan{
		name: "JSON",
		args: []string{"-wire", "json"},
		stages: []stage{
			startStage("JSON start"),
			{name: "pods", steps: podSteps(), lasts: stepPause},
			{name: "nodes", steps: nodeSteps(), lasts: stepPause},
			{name: "JSON expired", steps: expirySteps(), lasts: stepPause},
			lastStage(),
		},
		sweeps: func(p place) bool {
			isRead := strings.HasPrefix(p.class, "list ") || strings.HasPrefix(p.class, "watch ")
			return isRead && strings.HasPrefix(p.stage, "JSON ") && !strings.Contains(p.class, "counts")
		},
	}
}

// idleLife is a life in which nothing changes until each watch has ended, and another one has followed it.
func idleLife() lifePlan {
	return lifePlan{
		name: "idle",
		stages: []stage{
			startStage("start"),
			{name: "idle", lasts: 14 * time.Minute, isIdle: true},
			lastStage(),
		},
		sweeps: func(p place) bool { return p.stage == "idle" },
	}
}

// hourLife is a life that is long enough for the hourly lists. Its runs take many times longer than the others. So only
// these lists are swept, and there is no election, which would renew a lease all the time.
func hourLife() lifePlan {
	return lifePlan{
		name:              "an hour",
		isWithoutElection: true,
		stages:            []stage{startStage("start"), {name: "hour", lasts: 70 * time.Minute}, lastStage()},
		sweeps:            func(p place) bool { return p.stage == "hour" && strings.HasPrefix(p.class, "list ") },
	}
}

func startStage(name string) stage {
	return stage{name: name, steps: []sweptStep{(*sweptLife).start}, lasts: 3 * stepPause}
}

// lastStage changes something of each resource, so that a process that no longer follows one of them is found out.
func lastStage() stage {
	steps := []sweptStep{addPod("p8", "n1"), addNode("n4"), addCount("c2", 3)}
	return stage{name: "last", steps: steps, lasts: stepPause}
}

// These stages end each life. In the first, nothing may be written. In the second, the process is asked to stop.
const (
	calmStage = "calm"
	stopStage = "stop"
)

// start starts the process in a small cluster.
func (w *sweptLife) start() {
	w.setToken("first")
	fixture.InstallCRD(w.fake, &fixture.CRD{HasStatus: true})
	w.fake.AddNode("n0", w.ControlPlaneLabel)
	addNode("n1")(w)
	addNode("n2")(w)
	for i, node := range []string{"n1", "n1", "n2", ""} {
		addPod(fmt.Sprint("p", i), node)(w)
	}
	addCount("c0", 4)(w)
	w.launch(0)
}

// expire ends all watches, and makes their versions too old.
func (w *sweptLife) expire() {
	settle(100 * time.Millisecond) // A watch that has yet to send a change would get an error before it ends.
	w.fake.Compact()
	w.fake.EndWatches()
}

// renewToken replaces the token. The old one is refused at once.
func (w *sweptLife) renewToken() { w.setToken("second") }

func podSteps() []sweptStep {
	return []sweptStep{
		addPod("p5", "n1"),
		removePod("p0"),
		removePod("p1"),
		addPod("p1", "n2"), // The same name comes again, on another node.
	}
}

func nodeSteps() []sweptStep {
	return []sweptStep{
		addNode("n3"),
		func(w *sweptLife) { w.fake.Remove("nodes", key{Name: "n2"}) },
		addNode("n2"),
		func(w *sweptLife) { fixture.SetLabel(w.fake, "n1", w.OwnPodsLabel, "99") }, // The process must correct it.
	}
}

func countSteps() []sweptStep {
	return []sweptStep{
		addCount("c1", 2),
		addCount("c0", 1), // It exists, and expects another number from now on.
		func(w *sweptLife) { w.fake.Remove("counts", key{Namespace: "default", Name: "c0"}) },
	}
}

func expirySteps() []sweptStep {
	return []sweptStep{(*sweptLife).expire, addPod("p6", "n1")}
}

func tokenSteps() []sweptStep {
	return []sweptStep{(*sweptLife).renewToken, addPod("p7", "n2")}
}

func addPod(name, node string) sweptStep {
	return func(w *sweptLife) { w.fake.AddPod("default", name, node) }
}

func removePod(name string) sweptStep {
	return func(w *sweptLife) { w.fake.Remove("pods", key{Namespace: "default", Name: name}) }
}

func addNode(name string) sweptStep {
	return func(w *sweptLife) { w.fake.AddNode(name, "role=worker") }
}

// countedName is the label of the pods that all Counts count. The fake gives it to each pod.
const countedName = "web"

// addCount creates a Count that expects n pods, or changes an existing one to that.
func addCount(name string, n int) sweptStep {
	return func(w *sweptLife) {
		fixture.AddCount(w.fake, name, fmt.Sprintf(`{"name":%q,"count":%d}`, countedName, n))
	}
}
