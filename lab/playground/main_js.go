package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"syscall/js"
	"time"

	"podcount/internal/api/tab"
)

// sleepLimit is how much later than due a tick comes after a sleep. Busy programs are not that late.
const sleepLimit = 15 * time.Second

// main runs the playground in a worker, until its tab is closed.
func main() {
	p := newPlayground("", flags(os.Args[1:]), usualPauses, os.Stdout, os.Stderr)
	if err := p.replicas.add(newReplica("the first replica", token, "/playground.kubeconfig", p.flags)); err != nil {
		panic(err) // a worker always starts
	}
	routes := p.routes()
	tab.Parent().Listen(func(request js.Value) { answerTab(routes, request) })
	go p.keepRunning()
	go p.noticeSleep()
	p.live(nil, nil) // There is nothing that ends it.
}

// keepRunning starts again each replica that ends by itself, as a kubelet does.
func (p *playground) keepRunning() {
	for end := range p.replicas.ended {
		fmt.Fprintf(p.out, "playground: %s has ended: %v\n", end.of.name, end.err)
		pause(p.ctx, time.Second)
		p.replicas.start(end.of)
	}
}

// noticeSleep reports when the tab has slept. A browser stops a tab that nobody sees for long, and all its workers.
func (p *playground) noticeSleep() {
	asleep := pauseButton()
	for last := time.Now(); pause(p.ctx, time.Second) == nil; last = time.Now() {
		slept := time.Since(last)
		if slept < sleepLimit {
			continue
		}
		p.presses.begin(asleep, asleep.label(p), func(r *press) error {
			r.say("This tab slept for %s, and podcount with it: it was a paused leader.", rounded(slept))
			if slept > p.flags.renewDeadline() {
				r.say("A leader that cannot renew its Lease for %s ends. It is started again, as a kubelet does.",
					seconds(p.flags.renewDeadline()))
			}
			woken := time.Now()
			if err := p.awaitLeader(r, "the tab woke", woken, ""); err != nil {
				return err
			}
			return p.followLabel(r, p.label(), woken, "the tab woke", 0)
		})
	}
}

// answerTab answers a request of the page, through the MessagePort that came with it.
func answerTab(handler http.Handler, request js.Value) {
	port := request.Get("port")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	isGone := js.FuncOf(func(js.Value, []js.Value) any {
		cancel()
		return nil
	})
	defer isGone.Release()
	port.Set("onmessage", isGone)
	address := "http://127.0.0.1/" + request.Get("path").String()
	r, err := http.NewRequestWithContext(ctx, request.Get("method").String(), address, http.NoBody)
	if err != nil {
		panic(err) // the page's own addresses are right
	}
	answer := &tabAnswer{port: port, header: http.Header{}}
	serve(handler, answer, r)
	answer.Flush()
	port.Call("postMessage", nil)
	port.Call("close")
}

// tabAnswer is an http.ResponseWriter that sends an answer through a MessagePort: first the status, and then the body.
type tabAnswer struct {
	port   js.Value
	header http.Header
	began  bool
}

func (a *tabAnswer) Header() http.Header { return a.header }

func (a *tabAnswer) WriteHeader(code int) {
	if !a.began {
		a.began = true
		a.port.Call("postMessage", code)
	}
}

// Flush sends the status, if that is all so far. Each part of the body is sent at once.
func (a *tabAnswer) Flush() { a.WriteHeader(http.StatusOK) }

func (a *tabAnswer) Write(data []byte) (int, error) {
	a.Flush()
	bytes := js.Global().Get("Uint8Array").New(len(data))
	js.CopyBytesToJS(bytes, data)
	a.port.Call("postMessage", bytes)
	return len(data), nil
}
