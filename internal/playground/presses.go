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

// begin starts a press, unless one goes on that excludes it. act does what the button does.
func (rs *presses) begin(b *button, act func(*press) error) (number int, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.ctx.Err() != nil {
		return 0, errEnding
	}
	for _, other := range rs.going {
		if reason := b.whyNotDuring(other.button); reason != "" {
			return 0, errors.New(reason)
		}
	}
	rs.last++
	r := &press{ctx: rs.ctx, presses: rs, button: b, number: rs.last, began: time.Now()}
	rs.going = append(rs.going, r)
	rs.publishLocked(r.messageLocked(isGoing))
	rs.work.Go(func() { r.end(act(r)) })
	return r.number, nil
}

// say adds a sentence to the report.
func (r *press) say(format string, args ...any) {
	r.presses.mu.Lock()
	defer r.presses.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
	r.presses.publishLocked(r.messageLocked(isGoing))
}

// end reports that the press is done. err says what has gone wrong.
func (r *press) end(err error) {
	rs := r.presses
	rs.mu.Lock()
	defer rs.mu.Unlock()
	state := isDone
	if err != nil {
		state = hasError
		r.said = append(r.said, sentence(err))
	}
	rs.going = slices.DeleteFunc(rs.going, func(other *press) bool { return other == r })
	rs.publishLocked(r.messageLocked(state))
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

func (r *press) messageLocked(state pressState) message {
	return message{"report", report{
		Run:   r.number,
		Name:  r.button.name,
		State: state,
		Text:  strings.Join(r.said, " "),
	}}
}

// publish sends a message to all subscribers.
func (rs *presses) publish(m message) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.publishLocked(m)
}

// publishLocked drops subscribers that are too slow.
func (rs *presses) publishLocked(m message) {
	for subscriber := range rs.subscribers {
		select {
		case subscriber <- m:
		default:
			rs.dropLocked(subscriber)
		}
	}
}

// subscribe returns a channel that gets the newest report of each press that goes on, and then all that is reported. It
// is closed if its reader is too slow. It returns nil if there are too many subscribers.
func (rs *presses) subscribe() chan message {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if len(rs.subscribers) >= maxSubscribers {
		return nil
	}
	subscriber := make(chan message, messagesAhead)
	for _, r := range rs.going {
		subscriber <- r.messageLocked(isGoing) // there are fewer buttons than messagesAhead
	}
	rs.subscribers[subscriber] = true
	return subscriber
}

// unsubscribe ends a subscription, unless it has been dropped already.
func (rs *presses) unsubscribe(subscriber chan message) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.dropLocked(subscriber)
}

func (rs *presses) dropLocked(subscriber chan message) {
	if rs.subscribers[subscriber] {
		delete(rs.subscribers, subscriber)
		close(subscriber)
	}
}

// wait waits for a while. It returns an error if the playground ends before.
func (r *press) wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.ctx.Done():
		return errEnding
	}
}

// errEnding is the error of a press that the end of the playground has cut short.
var errEnding = errors.New("the playground has ended")
