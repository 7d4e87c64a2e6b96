package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// brokenRule marks the lines of the story about broken rules.
const brokenRule = "BREAKS A RULE"

// record adds a line to the story.
func (s *sim) record(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordLocked(format, args...)
}

func (s *sim) recordLocked(format string, args ...any) {
	at := time.Since(s.began).Truncate(time.Millisecond)
	s.story = append(s.story, at.String()+" "+fmt.Sprintf(format, args...))
}

// recordPhase adds a line to the story that is about the whole seed, and to the history.
func (s *sim) recordPhase(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recordPhaseLocked(format, args...)
}

func (s *sim) recordPhaseLocked(format string, args ...any) {
	s.recordLocked(format, args...)
	s.recordOwnLocked(faultsLane, ownStep{Point: pointPhase, Text: fmt.Sprintf(format, args...)})
}

// breakRuleLocked notes that a process has broken a rule.
func (s *sim) breakRuleLocked(p *proc, format string, args ...any) {
	rule := fmt.Sprintf(format, args...)
	s.recordLocked("%s %s: %s", p.host, brokenRule, rule)
	s.recordOwnLocked(p.lane(), ownStep{Point: pointBroken, Key: p.host, Text: rule})
	s.broken = append(s.broken, p.host+" "+rule)
	s.rules = append(s.rules, format)
}

// failLocked notes that a rule was broken that is not about a single process. The story does not show it.
func (s *sim) failLocked(format string, args ...any) {
	rule := fmt.Sprintf(format, args...)
	s.recordOwnLocked(faultsLane, ownStep{Point: pointBroken, Text: rule})
	s.broken = append(s.broken, rule)
	s.rules = append(s.rules, format)
}

// hasBroken reports whether any rule has been broken.
func (s *sim) hasBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.broken) > 0
}

// storyLocked returns the story: all of it if WholeStory is set, or else the lines around the first broken rule, or the
// last lines if the story has no broken rule.
func (s *sim) storyLocked() string {
	const linesBefore = 150
	const linesAfter = 10
	story := s.story
	if !s.WholeStory {
		at := slices.IndexFunc(story, func(line string) bool { return strings.Contains(line, brokenRule) })
		if at < 0 {
			at = len(story)
		}
		story = story[max(0, at-linesBefore):min(at+linesAfter, len(story))]
	}
	return fmt.Sprintf("%s %s\n(%d of %d lines)\n%s",
		s.Name, strings.Join(s.args, " "), len(story), len(s.story), strings.Join(story, "\n"))
}
