package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// presses are the presses of buttons. Each runs on a goroutine of its own, and reports what happens.
type presses struct {
	ctx  context.Context // ends with the playground
	work sync.WaitGroup

	mu          sync.Mutex // guards the fields below
	last        int        // the number of the newest press
	going       []*press   // those that are not done yet
	subscribers map[chan message]bool
}

// press is one press of a button. The page calls it a run.
type press struct {
	ctx     context.Context
	presses *presses
	button  *button
	label   string // what the button said when it was pressed
	number  int
	began   time.Time

	said []string // sentences about what has happened so far; presses.mu guards it
}

// report is what the page gets about a press. It is JSON for GET /playground/events.
type report struct {
	Run   int        `json:"run"`
	Name  string     `json:"name"`
	State pressState `json:"state"`
	Text  string     `json:"text"`
}

// pressState says how far a press has come.
type pressState string

const (
	isGoing  pressState = "running"
	isDone   pressState = "done"
	hasError pressState = "failed" // something happened that the button does not expect
)

// message is an event of GET /playground/events.
type message struct {
	event string // its type
	data  any    // to be sent as JSON
}

// maxSubscribers limits the streams of reports, and messagesAhead how far the reader of one may fall back.
const (
	maxSubscribers = 16
	messagesAhead  = 64
)

func newPresses(ctx context.Context) *presses {
	return &presses{ctx: ctx, subscribers: map[chan message]bool{}}
}

// begin starts a press, unless one goes on that excludes it. label is what the button says now, and act does what it
// does.
func (ps *presses) begin(b *button, label string, act func(*press) error) (number int, err error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.ctx.Err() != nil {
		return 0, errEnding
	}
	for _, other := range ps.going {
		if reason := b.whyNotDuring(other); reason != "" {
			return 0, busyError(reason)
		}
	}
	ps.last++
	p := &press{ctx: ps.ctx, presses: ps, button: b, label: label, number: ps.last, began: time.Now()}
	ps.going = append(ps.going, p)
	ps.publishLocked(p.messageLocked(isGoing))
	ps.work.Go(func() { p.end(act(p)) })
	return p.number, nil
}

// say adds a sentence to the report.
func (p *press) say(format string, args ...any) {
	p.presses.mu.Lock()
	defer p.presses.mu.Unlock()
	p.said = append(p.said, fmt.Sprintf(format, args...))
	p.presses.publishLocked(p.messageLocked(isGoing))
}

// end reports that the press is done. err says what has gone wrong.
func (p *press) end(err error) {
	ps := p.presses
	ps.mu.Lock()
	defer ps.mu.Unlock()
	state := isDone
	if err != nil {
		state = hasError
		p.said = append(p.said, sentence(err))
	}
	ps.going = slices.DeleteFunc(ps.going, func(other *press) bool { return other == p })
	ps.publishLocked(p.messageLocked(state))
}

// sentence returns an error as a sentence.
func sentence(err error) string { return capitalized(err.Error()) + "." }

// capitalized returns a text with a capital at its beginning, except for the name podcount.
func capitalized(text string) string {
	if strings.HasPrefix(text, "podcount") {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

func (p *press) messageLocked(state pressState) message {
	return message{"report", report{
		Run:   p.number,
		Name:  p.button.name,
		State: state,
		Text:  strings.Join(p.said, " "),
	}}
}

// publish sends a message to all subscribers.
func (ps *presses) publish(m message) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.publishLocked(m)
}

// publishLocked drops subscribers that are too slow.
func (ps *presses) publishLocked(m message) {
	for subscriber := range ps.subscribers {
		select {
		case subscriber <- m:
		default:
			ps.dropLocked(subscriber)
		}
	}
}

// subscribe returns a channel that gets the newest report of each press that goes on, and then all that is reported. It
// is closed if its reader is too slow. It returns nil if there are too many subscribers.
func (ps *presses) subscribe() chan message {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if len(ps.subscribers) >= maxSubscribers {
		return nil
	}
	subscriber := make(chan message, messagesAhead)
	for _, r := range ps.going {
		subscriber <- r.messageLocked(isGoing) // there are fewer buttons than messagesAhead
	}
	ps.subscribers[subscriber] = true
	return subscriber
}

// unsubscribe ends a subscription, unless it has been dropped already.
func (ps *presses) unsubscribe(subscriber chan message) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.dropLocked(subscriber)
}

func (ps *presses) dropLocked(subscriber chan message) {
	if ps.subscribers[subscriber] {
		delete(ps.subscribers, subscriber)
		close(subscriber)
	}
}

// wait waits for a while. It returns an error if the playground ends before.
func (p *press) wait(d time.Duration) error { return pause(p.ctx, d) }

// pause waits for a while. It returns an error if ctx, which ends with the playground, ends before.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errEnding
	}
}

// errEnding is the error of a press that the end of the playground has cut short.
var errEnding = errors.New("the playground has ended")
