package behaviours

import (
	"io"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

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
