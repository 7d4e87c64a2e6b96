package page

import (
	"fmt"
	"net/http"
	"time"
)

// writeTimeout is how long a message may wait for room on the connection of a viewer. A slower viewer is dropped. The
// room is small: see package listen.
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
	checkedAt := time.Now()
	for message := range v.messages { // at least the state comes once a second
		if time.Since(checkedAt) >= time.Second {
			checkedAt = time.Now()
			if isAllowed, _ := p.guard.allows(r); !isAllowed {
				return // the token is not valid any more
			}
		}
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
	// Only browsers set these. To an address that is neither https nor this machine, they send only Origin.
	site := r.Header.Get("Sec-Fetch-Site")
	isOwnSite := site == "" || site == "same-origin" || site == "none"
	origin := r.Header.Get("Origin")
	isOwnOrigin := origin == "" || origin == "http://"+r.Host || origin == "https://"+r.Host
	return isOwnSite && isOwnOrigin
}
