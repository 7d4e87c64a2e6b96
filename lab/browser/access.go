package browser

import (
	"fmt"
	"os"
	"testing"
)

// Focus is what somebody who uses the keyboard knows of the element that has the focus.
type Focus struct {
	Element    string `json:"element"` // such as button#show-cluster
	Role       string // such as button, as a screen reader says it
	Name       string // as a screen reader says it
	IsOutlined bool   `json:"isOutlined"` // it has an outline, and it is in view
}

// focusScript describes the element that has the focus; null if it is the whole document. The outline may be the
// element's own or, as for a hidden input, that of its label.
const focusScript = `(() => {
  const element = document.activeElement;
  if (!element || element === document.body || element === document.documentElement) return null;
  const isMarked = (marked) => {
    const style = getComputedStyle(marked);
    const box = marked.getBoundingClientRect();
    const isInView = box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0 &&
      box.top < innerHeight && box.left < innerWidth;
    return isInView && style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
  };
  return {
    element: element.localName + (element.id && "#" + element.id) +
      (element.classList.length ? "." + [...element.classList].join(".") : ""),
    isOutlined: isMarked(element) || [...element.labels ?? []].some(isMarked),
  };
})()`

// Focus describes the element that has the focus. It returns nil if none has.
func (tab *Tab) Focus() *Focus {
	tab.t.Helper()
	focus := Value[*Focus](tab, focusScript)
	if focus == nil {
		return nil
	}
	var active struct {
		Result struct {
			ObjectID string `json:"objectId"`
		} `json:"result"`
	}
	tab.call("Runtime.evaluate", object{"expression": "document.activeElement"}, &active)
	type text struct {
		Value string `json:"value"`
	}
	var tree struct {
		Nodes []struct {
			Role text `json:"role"`
			Name text `json:"name"`
		} `json:"nodes"`
	}
	tab.call("Accessibility.getPartialAXTree",
		object{"objectId": active.Result.ObjectID, "fetchRelatives": false}, &tree)
	if len(tree.Nodes) > 0 {
		focus.Role = tree.Nodes[0].Role.Value
		focus.Name = tree.Nodes[0].Name.Value
	}
	return focus
}

// axeScript returns a line for each element that breaks one of axe-core's rules.
const axeScript = `axe.run(document, {resultTypes: ["violations"], preload: false}).then((results) =>
  results.violations.flatMap((rule) => rule.nodes.map((node) =>
    rule.id + " (" + rule.impact + "): " + node.html.slice(0, 300) + "\n  " + node.failureSummary)))`

// Axe runs axe-core, and returns what it finds to be inaccessible. It skips t, which may be a subtest of the tab's
// test, if the environment's AXE does not name the file axe.min.js.
func (tab *Tab) Axe(t testing.TB) []string {
	t.Helper()
	file := os.Getenv("AXE")
	if file == "" {
		t.Skip("AXE does not name the file axe.min.js of axe-core: .ci/browser fetches it")
	}
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("the environment's AXE: %v", err)
	}
	if tab.Eval("typeof axe") == "undefined" {
		tab.evaluate(string(script) + "\n;0")
	}
	return Value[[]string](tab, axeScript)
}

// Frames is how smoothly a page runs.
type Frames struct {
	PerSecond float64 `json:"perSecond"`
	Longest   float64 `json:"longest"`   // the longest time between two frames, in milliseconds
	LongTasks int     `json:"longTasks"` // the tasks of more than 50 milliseconds
	LongTotal float64 `json:"longTotal"` // the time in these tasks, in milliseconds
}

// framesScript counts the frames of some milliseconds.
const framesScript = `new Promise((resolve) => {
  let longTasks = 0;
  let longTotal = 0;
  const observer = new PerformanceObserver((list) => {
    for (const task of list.getEntries()) {
      longTasks++;
      longTotal += task.duration;
    }
  });
  observer.observe({type: "longtask"});
  let frames = 0;
  let longest = 0;
  let start = null;
  let last = null;
  const count = (now) => {
    start ??= now;
    longest = Math.max(longest, now - (last ?? now));
    last = now;
    if (now - start < %d) {
      frames++;
      requestAnimationFrame(count);
      return;
    }
    observer.disconnect();
    resolve({perSecond: frames / (now - start) * 1000, longest, longTasks, longTotal});
  };
  requestAnimationFrame(count);
})`

// Frames counts the page's frames for some seconds.
func (tab *Tab) Frames(seconds int) Frames {
	tab.t.Helper()
	return Value[Frames](tab, fmt.Sprintf(framesScript, seconds*1000))
}
