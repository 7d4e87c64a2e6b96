package logging

import (
	"log/slog"
	"strings"
	"time"
)

// ServerOutage logs that a server is away: one line each minute, however many Outages notice it. An Outage that belongs
// to it (see Outage.Of) passes on the failures that are the server's, and logs them at the debug level only.
type ServerOutage struct {
	outage *Outage
	isAway func(err error) bool
}

// NewServerOutage makes a ServerOutage. isAway reports whether an error says that the server is away. details returns
// further attributes of a line; it must not call an Outage.
func NewServerOutage(log *slog.Logger, isAway func(err error) bool, details func() []any) *ServerOutage {
	s := &ServerOutage{outage: NewOutage(log, "API server", "reached again"), isAway: isAway}
	s.outage.details = details
	return s
}

// Stop ends the reminders, as Outage.Stop does.
func (s *ServerOutage) Stop() { s.outage.Stop() }

// Of makes an Outage pass on the failures that are the server's. It returns the Outage. Call it before the first
// failure.
func (o *Outage) Of(s *ServerOutage) *Outage {
	o.server = s
	return o
}

// serverPart is the name of a part of an Outage among the parts of its server.
func (o *Outage) serverPart(part string) string { return o.subject + "\x00" + part }

// failedForServer passes a failure on if it is the server's. Then the part no longer fails for a reason of its own.
func (o *Outage) failedForServer(part string, f failure) (isPassedOn bool) {
	err := f.err()
	if o.server == nil || err == nil || !o.server.isAway(err) {
		return false
	}
	o.mu.Lock()
	o.state.remove(part, f.at)
	o.setTimerLocked()
	args := append([]any{}, o.args...)
	o.log.Debug(f.problem, append(args, f.args...)...)
	o.mu.Unlock()
	o.server.outage.Failed(o.serverPart(part), "the API server cannot be reached", time.Minute, "err", err)
	return true
}

// serverAnswers tells the server that a part no longer fails because of it.
func (o *Outage) serverAnswers(part string) {
	if o.server != nil {
		o.server.outage.Worked(o.serverPart(part))
	}
}

// ownPartsAtServer returns the failing parts of the server that are this Outage's.
func (o *Outage) ownPartsAtServer() (parts []failingPart) {
	if o.server == nil {
		return nil
	}
	all := o.server.outage
	all.mu.Lock()
	defer all.mu.Unlock()
	for name, part := range all.state.failing {
		if strings.HasPrefix(name, o.serverPart("")) {
			parts = append(parts, *part)
		}
	}
	return parts
}
