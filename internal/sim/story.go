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

// takenStep is a step that has happened.
type takenStep struct {
	number  int
	isFault bool
	line    string // as in the script, with the description
}

// noteStep adds a step to the story and the script. If it has changed nothing, its description is "". In a seed that
// takes aim, the description depends on the program, so the script has only the name.
func (s *sim) noteStep(what step, description string) {
	if description != "" {
		s.record("step %d: %s", s.stepNumber, description)
		line := s.scriptLine(description)
		s.taken = append(s.taken, takenStep{number: s.stepNumber, isFault: len(what.concerns) > 0, line: line})
	}
	switch {
	case len(s.pairsToAimAt) > 0:
		s.script = append(s.script, s.scriptLine(what.name))
	case description != "":
		s.script = append(s.script, s.scriptLine(description))
	}
}

func (s *sim) scriptLine(text string) string {
	return fmt.Sprintf("act %d, %v: step %d: %s", s.act, time.Since(s.actBegan), s.stepNumber, text)
}

// breakRuleLocked notes that a process has broken a rule.
func (s *sim) breakRuleLocked(p *proc, format string, args ...any) {
	rule := fmt.Sprintf(format, args...)
	s.recordLocked("%s %s: %s", p.host, brokenRule, rule)
	s.broken = append(s.broken, p.host+" "+rule)
	s.rules = append(s.rules, format)
}

// failLocked notes that a rule was broken that is not about a single process.
func (s *sim) failLocked(format string, args ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
	s.rules = append(s.rules, format)
}

// hasBroken reports whether any rule has been broken.
func (s *sim) hasBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.broken) > 0
}

// storyLocked returns the story: all of it if WholeStory is set, or else the lines around the first broken rule.
func (s *sim) storyLocked() string {
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
