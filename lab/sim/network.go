package sim

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"podcount/lab/fakekube"
)

// link is the network of one process. Its faults affect no other process.
type link struct {
	net  *fakekube.Network
	lost lostRequests

	// fromServer is the speed at which the server's answers arrive. All connections share it. Requests are not slowed:
	// a Write of HTTP/2 holds a lock, and virtual time stands still while another goroutine waits for that lock.
	fromServer pacer

	mu       sync.Mutex     // guards all below
	isAway   bool           // attempts to connect are refused
	isLost   bool           // attempts to connect get no answer
	isMute   bool           // new connections are silent
	isDead   bool           // the link stays away for ever
	maxAge   time.Duration  // the age at which a fault breaks connections; 0 if there is no such fault
	wires    map[*wire]bool // the connections that the process has not closed
	closedAt time.Time      // when a wire was last closed or broken; what the server writes at that moment may be lost
}

// wire is one connection. Once it is silent, everything that is sent in either direction is lost.
type wire struct {
	net.Conn
	link   *link
	opened time.Time
	silent chan struct{} // closed when the wire becomes silent
	closed chan struct{}

	silenceOnce sync.Once
	closeOnce   sync.Once
	isEnding    atomic.Bool // crypto/tls is about to close it

	// unansweredAt is when the process last sent something. It is nil if the server has sent something after that.
	unansweredAt atomic.Pointer[time.Time]
}

// lostDialTimeout is how long the kernel tries to reach a host that does not answer.
const lostDialTimeout = 30 * time.Second

// dial connects to the server. The program gets it as its only way to connect.
func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	isAway := l.isAway
	isLost := l.isLost
	l.mu.Unlock()
	if isLost {
		ctx, cancel := context.WithTimeout(ctx, lostDialTimeout)
		defer cancel()
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	if isAway {
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: network, Err: refused}
	}
	conn, err := l.net.Dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return l.newWire(conn), nil
}

// newWire returns a new connection of the link. It is silent if the link is mute.
func (l *link) newWire(conn net.Conn) *wire {
	w := &wire{
		Conn:   conn,
		link:   l,
		opened: time.Now(),
		silent: make(chan struct{}),
		closed: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wires[w] = true
	if l.isMute {
		w.silence()
	}
	return w
}

// Read returns what the server has sent. Once the wire is silent, it blocks until the wire is closed.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.link.fromServer.pass(n, w.closed)
	if w.isSilent() {
		<-w.closed
		return 0, net.ErrClosed
	}
	if n > 0 {
		w.unansweredAt.Store(nil)
	}
	if err != nil {
		w.noteReadError()
	}
	return n, err
}

// noteReadError notes a lost request if the connection has broken without an answer. If the process itself has closed
// the connection, it is not broken.
func (w *wire) noteReadError() {
	sentAt := w.unansweredAt.Load()
	isOwnClose := isClosed(w.closed)
	if sentAt != nil && !isOwnClose {
		w.link.lost.add(*sentAt)
	}
}

// Write sends to the server. Once the wire is silent or about to be closed, it drops everything.
func (w *wire) Write(p []byte) (int, error) {
	if w.isSilent() || w.isEnding.Load() {
		return len(p), nil
	}
	now := time.Now()
	w.unansweredAt.Store(&now)
	return w.Conn.Write(p)
}

// SetWriteDeadline is what crypto/tls calls before it sends its last alert and closes the connection. Nothing else
// calls it. A socket takes those few bytes at once, but a pipe blocks until the server reads. net/http holds a lock
// meanwhile, and virtual time stands still while a goroutine waits for a lock. So the wire drops the alert: the server
// notices the end by Close.
func (w *wire) SetWriteDeadline(t time.Time) error {
	w.isEnding.Store(true)
	return w.Conn.SetWriteDeadline(t)
}

// Close closes the connection. The server notices it even if the wire is silent.
func (w *wire) Close() error {
	w.closeOnce.Do(func() { close(w.closed) })
	w.link.mu.Lock()
	delete(w.link.wires, w)
	w.link.closedAt = time.Now()
	w.link.mu.Unlock()
	return w.Conn.Close()
}

// silence makes the wire silent.
func (w *wire) silence() { w.silenceOnce.Do(func() { close(w.silent) }) }

func (w *wire) isSilent() bool { return isClosed(w.silent) }

// isClosed reports whether a channel is closed. Nothing may ever be sent to the channel.
func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// cut breaks all connections. Both ends notice that.
func (l *link) cut() {
	for _, w := range l.openWires() {
		w.Conn.Close()
	}
}

// cutOld breaks the connections that have reached maxAge. Both ends notice that.
func (l *link) cutOld() {
	l.mu.Lock()
	maxAge := l.maxAge
	l.mu.Unlock()
	for _, w := range l.openWires() {
		isOld := maxAge > 0 && time.Since(w.opened) >= maxAge
		if isOld {
			w.Conn.Close()
		}
	}
}

// setMaxAge changes the age at which cutOld breaks a connection. 0 means that it breaks none.
func (l *link) setMaxAge(age time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.maxAge = age
}

func (l *link) hasMaxAge() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.maxAge > 0
}

// setSpeed limits the speed of answers, in bytes a second. 0 removes the limit.
func (l *link) setSpeed(bytesPerSecond int) {
	l.fromServer.setSpeed(bytesPerSecond)
}

// close closes all connections, as the kernel does when a process has ended.
func (l *link) close() {
	for _, w := range l.openWires() {
		w.Close()
	}
}

// silence makes all connections silent. Neither end notices that.
func (l *link) silence() {
	for _, w := range l.openWires() {
		w.silence()
	}
}

// setAway makes the link refuse new connections, or allow them again. Either ends what setLost began.
func (l *link) setAway(isAway bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isAway = isAway || l.isDead
	l.isLost = false
}

// setLost makes attempts to connect get no answer. A dead link still refuses them.
func (l *link) setLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isAway = true
	l.isLost = !l.isDead
}

// setMute makes new connections silent, or lets them work again.
func (l *link) setMute(isMute bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isMute = isMute
}

// heal ends all faults of the link, except those of single connections.
func (l *link) heal() {
	l.setAway(false)
	l.setMute(false)
	l.setSpeed(0)
	l.setMaxAge(0)
}

// die breaks all connections, and refuses new ones for ever.
func (l *link) die() {
	l.mu.Lock()
	l.isAway = true
	l.isDead = true
	l.mu.Unlock()
	l.cut()
}

// mayLose reports whether an answer that the server sends now may be lost, or may arrive much later. It may be lost if
// a connection is silent, or if one was closed at this moment. It may be late if the link is slow.
func (l *link) mayLose() bool {
	l.mu.Lock()
	closedNow := l.closedAt.Equal(time.Now())
	l.mu.Unlock()
	return closedNow || l.fromServer.isLimited() || l.hasSilentWire()
}

func (l *link) hasSilentWire() bool { return slices.ContainsFunc(l.openWires(), (*wire).isSilent) }

// noteBreak notes that the server breaks a connection at this moment, so that its answers may be lost.
func (l *link) noteBreak() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closedAt = time.Now()
}

func (l *link) openWires() []*wire {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.wires))
}
