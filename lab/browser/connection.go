package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// callLimit is how long Chromium may take to answer one call. It is only there for a page that hangs.
const callLimit = time.Minute

// errEnded says that Chromium has closed its end of the pipe.
var errEnded = errors.New("the browser has ended")

// connection speaks the Chrome DevTools Protocol through two pipes: JSON messages, each ended by a zero byte.
type connection struct {
	ended chan struct{} // closed when Chromium has closed its pipe

	writing sync.Mutex // held while a message is written
	w       io.Writer

	mu       sync.Mutex // guards the fields below
	lastID   int
	answers  map[int]chan answer     // by the id of the call
	handlers map[string]eventHandler // by session
}

// eventHandler handles an event of a session. It must not wait, because no answer arrives until it returns.
type eventHandler func(method string, params json.RawMessage)

// call is a message to Chromium.
type call struct {
	ID      int    `json:"id"`
	Session string `json:"sessionId,omitempty"`
	Method  string `json:"method"`
	Params  any    `json:"params,omitempty"`
}

// answer is a message from Chromium that has the id of a call.
type answer struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// message is any message from Chromium: an answer, or an event, which has no id.
type message struct {
	answer
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

func newConnection(r io.Reader, w io.Writer) *connection {
	c := &connection{
		ended:    make(chan struct{}),
		w:        w,
		answers:  make(map[int]chan answer),
		handlers: make(map[string]eventHandler),
	}
	go c.read(r)
	return c
}

// read passes on all messages from Chromium until it closes its pipe.
func (c *connection) read(r io.Reader) {
	defer close(c.ended)
	buffered := bufio.NewReaderSize(r, 1<<20)
	for {
		text, err := buffered.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
			return
		}
		c.pass(m)
	}
}

// pass passes a message to whoever waits for it.
func (c *connection) pass(m message) {
	c.mu.Lock()
	waiting := c.answers[m.ID]
	handle := c.handlers[m.Session]
	c.mu.Unlock()
	switch {
	case m.ID != 0 && waiting != nil:
		waiting <- m.answer
	case m.ID == 0 && handle != nil:
		handle(m.Method, m.Params)
	}
}

// handle sets the handler of a session's events; nil removes it.
func (c *connection) handle(session string, handle eventHandler) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handlers[session] = handle
}

// call calls a method, and decodes its result into result unless that is nil. The session is "" for the browser's own
// methods.
func (c *connection) call(session, method string, params, result any) error {
	id, answered := c.expect()
	defer c.forget(id)
	if err := c.write(call{ID: id, Session: session, Method: method, Params: params}); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case a := <-answered:
		return decode(method, a, result)
	case <-c.ended:
		return fmt.Errorf("%s: %w", method, errEnded)
	case <-time.After(callLimit):
		return fmt.Errorf("%s: no answer in %s", method, callLimit)
	}
}

func decode(method string, a answer, result any) error {
	if a.Error != nil {
		return fmt.Errorf("%s: %s", method, a.Error.Message)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("%s: cannot decode the answer: %w", method, err)
	}
	return nil
}

// expect makes room for the answer to a new call.
func (c *connection) expect() (id int, answered chan answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	answered = make(chan answer, 1)
	c.answers[c.lastID] = answered
	return c.lastID, answered
}

func (c *connection) forget(id int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.answers, id)
}

func (c *connection) write(m call) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.w.Write(append(text, 0))
	return err
}
