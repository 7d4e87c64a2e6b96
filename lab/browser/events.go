package browser

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// exception is what the protocol calls exceptionDetails.
type exception struct {
	Text      string `json:"text"`
	URL       string `json:"url"`
	Line      int    `json:"lineNumber"`
	Exception struct {
		Description string          `json:"description"` // with the stack, for an Error
		Value       json.RawMessage `json:"value"`       // of what was thrown, if it is no object
	} `json:"exception"`
}

func (e *exception) String() string {
	thrown := cmp.Or(e.Exception.Description, string(e.Exception.Value))
	return fmt.Sprintf("%s %s (%s:%d)", e.Text, thrown, e.URL, e.Line+1)
}

// handleEvent remembers what the tests ask for. It must not wait.
func (tab *Tab) handleEvent(method string, params json.RawMessage) {
	switch method {
	case "Page.lifecycleEvent":
		tab.noteLifecycle(params)
	case "Network.requestWillBeSent":
		tab.noteRequest(params)
	case "Runtime.consoleAPICalled":
		tab.noteConsoleCall(params)
	case "Runtime.exceptionThrown":
		tab.noteException(params)
	case "Log.entryAdded":
		tab.noteLogEntry(params)
	}
}

func (tab *Tab) noteLifecycle(params json.RawMessage) {
	var event struct {
		Name   string `json:"name"`
		Loader string `json:"loaderId"`
	}
	if json.Unmarshal(params, &event) != nil || event.Name != "load" {
		return
	}
	select {
	case tab.loaded <- event.Loader:
	default: // nobody waits, and more documents have loaded than there is room for
	}
}

func (tab *Tab) noteRequest(params json.RawMessage) {
	var event struct {
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
	}
	if json.Unmarshal(params, &event) != nil {
		return
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.requests = append(tab.requests, event.Request.URL)
}

// noteConsoleCall notes console.error, console.warn and console.assert.
func (tab *Tab) noteConsoleCall(params json.RawMessage) {
	var event struct {
		Type string `json:"type"`
		Args []struct {
			Value       json.RawMessage `json:"value"`
			Description string          `json:"description"`
		} `json:"args"`
	}
	if json.Unmarshal(params, &event) != nil {
		return
	}
	if event.Type != "error" && event.Type != "warning" && event.Type != "assert" {
		return
	}
	line := "console." + event.Type + ":"
	for _, arg := range event.Args {
		line += " " + cmp.Or(arg.Description, strings.Trim(string(arg.Value), `"`))
	}
	tab.noteLine(line)
}

func (tab *Tab) noteException(params json.RawMessage) {
	var event struct {
		Details exception `json:"exceptionDetails"`
	}
	if json.Unmarshal(params, &event) == nil {
		tab.noteLine("exception: " + event.Details.String())
	}
}

// noteLogEntry notes what Chromium itself says in the console.
func (tab *Tab) noteLogEntry(params json.RawMessage) {
	var event struct {
		Entry struct {
			Source string `json:"source"` // such as network or security
			Level  string `json:"level"`
			Text   string `json:"text"`
			URL    string `json:"url"`
		} `json:"entry"`
	}
	if json.Unmarshal(params, &event) != nil {
		return
	}
	if e := event.Entry; e.Level == "error" || e.Level == "warning" {
		tab.noteLine(fmt.Sprintf("%s %s: %s (%s)", e.Source, e.Level, e.Text, e.URL))
	}
}

func (tab *Tab) noteLine(line string) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.console = append(tab.console, line)
}
