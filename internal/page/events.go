package page

import (
	"fmt"
	"net/http"
	"time"
)

// writeTimeout is how long a viewer may take to read a message. A slower one is dropped.
const writeTimeout = 5 * time.Second

// serveEvents sends what happens to a viewer, as server-sent events, until the viewer is gone or too slow, or Run ends.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	if !isOwnRequest(r) {
		http.Error(w, "another site may not open this stream", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		return
	}
	v := p.hub.join(r.URL.Query().Get("steps") == "1")
	if v == nil {
		w.Header().Set("Retry-After", "5")
		text := fmt.Sprintf("podcount ends, or has %d viewers already, which is the most: close one", viewerLimit)
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	defer p.hub.leave(v)
	for message := range v.messages {
		if err := sendMessage(w, message); err != nil {
			return // the viewer is gone, or too slow
		}
	}
}

// sendMessage sends a message, and waits until it is on its way.
func sendMessage(w http.ResponseWriter, message []byte) error {
	control := http.NewResponseController(w)
	// The server's own deadline is for a whole answer. This one never ends, so each message has its own.
	if err := control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(message); err != nil {
		return err
	}
	return control.Flush()
}

// isOwnRequest reports whether podcount's own page, or a program, sends a request. Another site could not read the
// answer, but its scripts could take the places of all viewers.
func isOwnRequest(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site") // only browsers set it
	return site == "" || site == "same-origin" || site == "none"
}
