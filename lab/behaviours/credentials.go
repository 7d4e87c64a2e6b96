package behaviours

import (
	"path"
	"path/filepath"
	"strings"

	"podcount/lab/testkit"
)

// awaitLog waits until podcount has logged all these texts.
func (w *world) awaitLog(log *testkit.Buffer, texts ...string) {
	w.Helper()
	for _, text := range texts {
		w.await("a log line with "+text, func() bool { return strings.Contains(log.String(), text) })
	}
}

func wrongToken(w *world) {
	node := w.addNode("token", "token")
	token := w.addPodcountAccount("token")
	file := filepath.Join(w.TempDir(), "token")
	writeFile(w, file, "wrong")
	log := w.start(w.as("tokenFile: "+file), "token")
	w.awaitLog(log, "401 Unauthorized", "the token of "+file)
	writeFile(w, file, token)
	w.awaitLabel(node, "0")
}

func missingRight(w *world) {
	node := w.addNode("rights", "rights")
	token := w.addAccount("rights")
	log := w.start(w.as("token: "+token), "rights", "-pod-events", "on")
	w.awaitLog(log, `the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"list\"]`)
	w.grant("rights")
	w.awaitLabel(node, "0")
	w.addPod("a", "rights")
	w.awaitLabel(node, "1")
	w.await("the event", func() bool {
		return w.timesReported("default", path.Base(node), "PodCountChanged", "pod count changed from 0 to 1") == 1
	})
}
