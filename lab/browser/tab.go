package browser

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Options say what a tab looks like to its page.
type Options struct {
	Width, Height    int  // in CSS pixels; 1440 and 900 if they are 0
	IsDark           bool // prefers-color-scheme: dark; else light
	IsMobile         bool // a phone: touch, and the page's viewport element counts
	HasReducedMotion bool // prefers-reduced-motion: reduce
}

// Tab is one page in Chromium. Each of its methods fails the test at once if it cannot do what it should.
type Tab struct {
	t       testing.TB
	pipe    *connection
	session string
	loaded  chan string // the loader ids of documents that have loaded

	mu       sync.Mutex // guards the fields below
	console  []string
	requests []string
}

// NewTab opens an empty tab, which is closed at the end of the test. Its cookies and its storage are its own.
func (b *Browser) NewTab(t testing.TB, o Options) *Tab {
	t.Helper()
	tab := &Tab{t: t, pipe: b.pipe, loaded: make(chan string, 100)}
	var context struct {
		ID string `json:"browserContextId"`
	}
	tab.callBrowser("Target.createBrowserContext", object{"disposeOnDetach": true}, &context)
	t.Cleanup(func() {
		b.pipe.handle(tab.session, nil)
		b.pipe.call("", "Target.disposeBrowserContext", object{"browserContextId": context.ID}, nil)
	})
	var target struct {
		ID string `json:"targetId"`
	}
	tab.callBrowser("Target.createTarget",
		object{"url": "about:blank", "browserContextId": context.ID, "newWindow": true}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	tab.callBrowser("Target.attachToTarget", object{"targetId": target.ID, "flatten": true}, &attached)
	tab.session = attached.Session
	b.pipe.handle(tab.session, tab.handleEvent)
	tab.setUp(o)
	return tab
}

// object is a JSON object.
type object map[string]any

// setUp switches on the events that handleEvent handles, and makes the tab look as the options want.
func (tab *Tab) setUp(o Options) {
	tab.t.Helper()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "DOM", "Accessibility"} {
		tab.call(domain+".enable", nil, nil)
	}
	tab.call("Page.setLifecycleEventsEnabled", object{"enabled": true}, nil)
	tab.call("Emulation.setDeviceMetricsOverride", object{
		"width":             cmp.Or(o.Width, 1440),
		"height":            cmp.Or(o.Height, 900),
		"deviceScaleFactor": 1,
		"mobile":            o.IsMobile,
	}, nil)
	tab.call("Emulation.setTouchEmulationEnabled", object{"enabled": o.IsMobile}, nil)
	tab.call("Emulation.setFocusEmulationEnabled", object{"enabled": true}, nil)
	scheme := "light"
	if o.IsDark {
		scheme = "dark"
	}
	motion := "no-preference"
	if o.HasReducedMotion {
		motion = "reduce"
	}
	tab.call("Emulation.setEmulatedMedia", object{"features": []object{
		{"name": "prefers-color-scheme", "value": scheme},
		{"name": "prefers-reduced-motion", "value": motion},
	}}, nil)
}

// Open opens a URL, and returns when the document and all that it names have loaded.
func (tab *Tab) Open(url string) {
	tab.t.Helper()
	var navigation struct {
		Loader string `json:"loaderId"` // "" if only the fragment differs
		Error  string `json:"errorText"`
	}
	tab.call("Page.navigate", object{"url": url}, &navigation)
	if navigation.Error != "" {
		tab.fail("cannot open %s: %s", url, navigation.Error)
	}
	timeout := time.After(callLimit)
	for loaded := ""; loaded != navigation.Loader; {
		select {
		case loaded = <-tab.loaded:
		case <-tab.pipe.ended:
			tab.t.Fatal(errEnded)
		case <-timeout:
			tab.fail("%s has not loaded in %s", url, callLimit)
		}
	}
}

// Follow clicks an element, and returns when the document that this opens has loaded.
func (tab *Tab) Follow(selector string) {
	tab.t.Helper()
	for len(tab.loaded) > 0 { // Open leaves those that it did not ask for.
		<-tab.loaded
	}
	tab.Click(selector)
	select {
	case <-tab.loaded:
	case <-tab.pipe.ended:
		tab.t.Fatal(errEnded)
	case <-time.After(callLimit):
		tab.fail("a click on %s has loaded nothing in %s", selector, callLimit)
	}
}

// Eval returns the value of a JavaScript expression, as JSON has it. It waits for a promise.
func (tab *Tab) Eval(expression string) any {
	tab.t.Helper()
	return Value[any](tab, expression)
}

// Value returns the value of a JavaScript expression as a Go value. It waits for a promise.
func Value[T any](tab *Tab, expression string) (value T) {
	tab.t.Helper()
	text := tab.evaluate(expression)
	if len(text) == 0 {
		return value // undefined
	}
	if err := json.Unmarshal(text, &value); err != nil {
		tab.fail("%s is not a %T, but %s", expression, value, text)
	}
	return value
}

// evaluate returns the value of an expression as JSON: nothing for undefined.
func (tab *Tab) evaluate(expression string) json.RawMessage {
	tab.t.Helper()
	var evaluated struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *exception `json:"exceptionDetails"`
	}
	tab.call("Runtime.evaluate", object{
		"expression":    expression,
		"awaitPromise":  true,
		"returnByValue": true,
		"userGesture":   true,
	}, &evaluated)
	if evaluated.Exception != nil {
		tab.fail("%s\nthrows %s", expression, evaluated.Exception)
	}
	return evaluated.Result.Value
}

// awaitLimit is how long Await waits.
const awaitLimit = 20 * time.Second

// awaitScript resolves to whether a condition has become true. It looks after each change of the document, and on a
// timer because not every condition is in the document. A condition that throws is false.
const awaitScript = `new Promise((resolve) => {
  const isTrue = () => {
    try {
      return Boolean(%s);
    } catch {
      return false;
    }
  };
  const finish = (result) => {
    observer.disconnect();
    clearInterval(timer);
    clearTimeout(limit);
    resolve(result);
  };
  const look = () => isTrue() && finish(true);
  const observer = new MutationObserver(look);
  observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  const timer = setInterval(look, 50);
  const limit = setTimeout(() => finish(false), %d);
  look();
})`

// Await returns when a JavaScript condition is true. It fails the test if that takes too long; what names the
// condition then.
func (tab *Tab) Await(what, condition string) {
	tab.t.Helper()
	if !Value[bool](tab, fmt.Sprintf(awaitScript, condition, awaitLimit.Milliseconds())) {
		tab.fail("%s: not in %s: %s", what, awaitLimit, condition)
	}
}

// Text returns the visible text of the first element that a CSS selector names.
func (tab *Tab) Text(selector string) string {
	tab.t.Helper()
	return Value[string](tab, fmt.Sprintf("document.querySelector(%s).innerText", quote(selector)))
}

// Screenshot returns a PNG of what the tab shows.
func (tab *Tab) Screenshot() []byte {
	tab.t.Helper()
	image, err := tab.capture()
	if err != nil {
		tab.t.Fatal(err)
	}
	return image
}

func (tab *Tab) capture() ([]byte, error) {
	var captured struct {
		Data string `json:"data"`
	}
	if err := tab.pipe.call(tab.session, "Page.captureScreenshot", object{"format": "png"}, &captured); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(captured.Data)
}

// Console returns the errors and warnings of the page so far: of its scripts, of its Content-Security-Policy, and of
// requests that failed.
func (tab *Tab) Console() []string {
	tab.t.Helper()
	tab.evaluate("0") // its answer comes after the events of what the page has done
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.console)
}

// Requests returns the URLs of all requests of the tab so far.
func (tab *Tab) Requests() []string {
	tab.t.Helper()
	tab.evaluate("0")
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return slices.Clone(tab.requests)
}

// WantQuiet fails the test if the console has a line, or if a request has gone to another place than origin, as in
// http://127.0.0.1:8081.
func (tab *Tab) WantQuiet(origin string) {
	tab.t.Helper()
	for _, line := range tab.Console() {
		tab.t.Errorf("the console says: %s", line)
	}
	origin = strings.TrimSuffix(origin, "/")
	for _, url := range tab.Requests() {
		isOwn := url == origin || strings.HasPrefix(url, origin+"/") || strings.HasPrefix(url, "data:")
		if !isOwn {
			tab.t.Errorf("a request left %s: %s", origin, url)
		}
	}
}

// call calls a method for this tab.
func (tab *Tab) call(method string, params, result any) {
	tab.t.Helper()
	if err := tab.pipe.call(tab.session, method, params, result); err != nil {
		tab.t.Fatal(err)
	}
}

// callBrowser calls a method of the browser.
func (tab *Tab) callBrowser(method string, params, result any) {
	tab.t.Helper()
	if err := tab.pipe.call("", method, params, result); err != nil {
		tab.t.Fatal(err)
	}
}

// fail ends the test. It shows the console, and keeps a screenshot.
func (tab *Tab) fail(format string, args ...any) {
	tab.t.Helper()
	tab.mu.Lock()
	console := strings.Join(tab.console, "\n")
	tab.mu.Unlock()
	tab.t.Fatalf("%s\nscreenshot: %s\nconsole: %s", fmt.Sprintf(format, args...), tab.keepScreenshot(), console)
}

// keepScreenshot writes a screenshot to a file that stays, and returns its path.
func (tab *Tab) keepScreenshot() string {
	image, err := tab.capture()
	if err != nil {
		return err.Error()
	}
	file, err := os.CreateTemp("", "podcount-*.png")
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if _, err := file.Write(image); err != nil {
		return err.Error()
	}
	return file.Name()
}

// quote returns a string as a JavaScript literal.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return string(text)
}
