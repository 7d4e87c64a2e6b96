package logging

import (
	"log/slog"
	"time"
)

// ServerOutage logs that a server is away: one line each minute. While it does, the Outages that it mutes do not log
// that they get no answer, either: see Outage.MutedBy.
type ServerOutage struct {
	outage *Outage
	isAway func(err error) bool
}

// serverPart is the only part of a ServerOutage.
const serverPart = "server"

// NewServerOutage makes a ServerOutage. isAway reports whether an error says that the server is away. details returns
// further attributes of a line; it must not call an Outage.
func NewServerOutage(log *slog.Logger, isAway func(err error) bool, details func() []any) *ServerOutage {
	s := &ServerOutage{outage: NewOutage(log, "API server", "reached again"), isAway: isAway}
	s.outage.details = details
	return s
}

// Failed reports that the server has not answered.
func (s *ServerOutage) Failed(err error) {
	s.outage.Failed(serverPart, "the API server cannot be reached", time.Minute, "err", err)
}

// Worked reports that the server has answered.
func (s *ServerOutage) Worked() { s.outage.Worked(serverPart) }

// Problem returns why the server does not answer. isAway is false if it answers.
func (s *ServerOutage) Problem() (now Problem, isAway bool) { return s.outage.Problem() }

// Stop ends the reminders, as Outage.Stop does.
func (s *ServerOutage) Stop() { s.outage.Stop() }

// MutedBy makes an Outage log nothing above the debug level while its newest failure says that a server is away, and
// the ServerOutage says that, too. It returns the Outage. Call it before the first failure.
func (o *Outage) MutedBy(s *ServerOutage) *Outage {
	o.server = s
	return o
}

// isMuted reports whether a failure need not be logged, because a ServerOutage logs that the server is away.
func (o *Outage) isMuted(f failure) bool {
	err := f.err()
	return o.server != nil && err != nil && o.server.isAway(err) && o.server.outage.Failing() > 0
}
