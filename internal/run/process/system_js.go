package process

import (
	"net/http"
	"os"
	"syscall"
	"syscall/js"

	"podcount/internal/api/tab"
)

// notifyOfStops lets a channel get a signal when the program that has started this worker sends a message, which asks
// podcount to stop.
func notifyOfStops(signals chan<- os.Signal) {
	tab.Parent().Listen(func(js.Value) { signals <- syscall.SIGTERM })
}

// prepareSystem lets requests go to the program that has started this worker. By default, the browser would send them.
func prepareSystem() { http.DefaultTransport.(*http.Transport).DialContext = tab.Parent().Dial }
