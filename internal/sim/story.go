package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const brokenRule = "BREAKS A RULE"

func (s *sim) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sayLocked(format, args...)
}

func (s *sim) sayLocked(format string, args ...any) {
	at := time.Since(s.began).Truncate(time.Millisecond)
	s.story = append(s.story, at.String()+" "+fmt.Sprintf(format, args...))
}

// breakLocked notes that a process broke a rule.
func (s *sim) breakLocked(p *proc, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.sayLocked("%s %s: %s", p.host, brokenRule, what)
	s.wrong = append(s.wrong, p.host+" "+what)
}

// failLocked notes that something is wrong with all processes taken together.
func (s *sim) failLocked(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// hasBroken reports whether a rule was broken.
func (s *sim) hasBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.wrong) > 0
}

// tellLocked is the story, or what came before and after the first broken rule.
func (s *sim) tellLocked() string {
	story := s.story
	if !s.WholeStory {
		end := slices.IndexFunc(story, func(line string) bool { return strings.Contains(line, brokenRule) })
		if end < 0 {
			end = len(story)
		}
		story = story[max(0, end-150):min(end+10, len(story))]
	}
	return fmt.Sprintf("%s %s\n(%d of %d lines)\n%s",
		s.Name, strings.Join(s.args, " "), len(story), len(s.story), strings.Join(story, "\n"))
}
