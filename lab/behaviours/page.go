package behaviours

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

// pageShowsPods follows a pod through the steps on the page: its frame, the change of the cache, and the label.
func pageShowsPods(w *world) {
	node := w.addNode("page", "page")
	log := w.start(w.admin(), "page", "-page", "127.0.0.1:0", "-node-label", w.label+"-here")
	w.awaitLabel(node, "0")
	steps := w.stepsOn(w.addressOfPage(log))
	w.addPod("seen", "page")
	pod := w.namespace + "/seen"
	frame := steps.await("the pod's frame", func(s trace.Step) bool {
		return s.Point == trace.Frame && s.Type == "ADDED" && s.Key == pod
	})
	hasName := bytes.Contains(frame.Bytes, []byte("seen"))
	isMasked := bytes.Contains(frame.Bytes, []byte("***"))
	if !hasName || !isMasked {
		w.Errorf("the frame is shown as %q, want the pod's name, and asterisks for unread fields", frame.Bytes)
	}
	steps.await("the change of the cache", func(s trace.Step) bool {
		return s.Point == trace.Change && s.Type == "added" && s.Key == pod
	})
	steps.await("the label", func(s trace.Step) bool {
		return s.Point == trace.Patched && s.Type == "written" && s.Kind == "Node"
	})
	w.awaitLabel(node, "1")
}

// addressOfPage returns the HOST:PORT of a podcount's page. It waits until podcount has logged it.
func (w *world) addressOfPage(log *testkit.Buffer) string {
	w.Helper()
	const mark = `msg="the page is served" on=`
	w.awaitLog(log, mark)
	_, after, _ := strings.Cut(log.String(), mark)
	address, _, _ := strings.Cut(after, "\n")
	return address
}

// stepStream reads the steps that a page sends.
type stepStream struct {
	w     *world
	lines *bufio.Scanner
}

// stepsOn opens the stream of steps of a page.
func (w *world) stepsOn(address string) *stepStream {
	w.Helper()
	request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://"+address+"/events?steps=1", nil)
	if err != nil {
		w.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return &stepStream{w: w, lines: lines}
}

// await reads until a step has come that is wanted, and returns it. what names it in the failure.
func (s *stepStream) await(what string, isWanted func(trace.Step) bool) trace.Step {
	s.w.Helper()
	for s.lines.Scan() {
		data, isData := strings.CutPrefix(s.lines.Text(), "data: ")
		var step trace.Step
		// The data of other events, such as the samples, is no step, or one without a point.
		if !isData || json.Unmarshal([]byte(data), &step) != nil {
			continue
		}
		if isWanted(step) {
			return step
		}
	}
	err := s.lines.Err()
	if err == nil {
		err = io.EOF
	}
	s.w.Fatalf("the stream has ended (%v) before %s", err, what)
	return trace.Step{}
}
