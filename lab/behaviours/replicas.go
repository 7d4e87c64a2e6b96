package behaviours

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func twoReplicas(w *world) {
	node := w.addNode("leader", "leader")
	w.deleteAtEnd(w.lease("ours"))
	startReplica := func(w *world) *testkit.Buffer {
		return w.start(w.admin(), "leader",
			"-leader-elect",
			"-leader-elect-resource-namespace", w.namespace,
			"-leader-elect-resource-name", "ours",
			"-leader-elect-lease-duration", "6s",
			"-leader-elect-renew-deadline", "4s",
			"-leader-elect-retry-period", "200ms",
		)
	}
	var second *testkit.Buffer
	w.Run("the first leads", func(t *testing.T) {
		startReplica(w.under(t))
		w.awaitLabel(node, "0")
		second = startReplica(w)
		w.awaitLog(second, "standing by")
		if strings.Contains(second.String(), "elected") {
			t.Error("both replicas lead")
		}
	})
	w.addPod("a", "leader")
	w.awaitLabel(node, "1")
	w.awaitLog(second, "elected")
}

// gate is a writer whose writes wait until open is closed.
type gate struct {
	io.Writer
	open <-chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Writer.Write(p)
}

func unreadOutput(w *world) {
	node := w.addNode("unread", "unread")
	path := w.lease("unread")
	w.deleteAtEnd(path)
	w.Run("leads", func(t *testing.T) {
		open := make(chan struct{})
		t.Cleanup(func() { close(open) }) // runs after podcount has ended
		log := &testkit.Buffer{Wrote: w.changed}
		w.under(t).startLoggingTo(&gate{log, open}, log, w.admin(), "unread",
			"-v", "6",
			"-leader-elect",
			"-leader-elect-resource-namespace", w.namespace,
			"-leader-elect-resource-name", "unread",
		)
		w.awaitLabel(node, "0")
		w.addPod("unread-a", "unread")
		w.awaitLabel(node, "1")
	})
	spec, _ := w.send("GET", path, nil)["spec"].(object)
	isReleased := fakekube.TextIn(spec, "renewTime") != "" && fakekube.TextIn(spec, "holderIdentity") == ""
	if !isReleased {
		w.Errorf("the lease was not released: %v", spec)
	}
}

func twoWithoutElection(w *world) {
	w.runAlongside("two")
	node := w.addNode("two", "two")
	first := w.startProxy("first")
	second := w.startProxy("second")
	w.start(first.access, "two")
	w.start(second.access, "two")
	for n := range 3 {
		w.awaitLabel(node, strconv.Itoa(n))
		w.awaitStill(first, node)
		w.awaitStill(second, node)
		w.addPod(fmt.Sprint("two-", n), "two")
	}
	w.awaitLabel(node, "3")
}
