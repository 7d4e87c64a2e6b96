package hunt

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// Level says how hard a bug is to find.
type Level string

// The levels, from the first to the last that a student tries.
const (
	Easy   Level = "easy"   // the symptom leads to one step of the tour
	Middle Level = "middle" // one has to know which part of podcount should have acted
	Hard   Level = "hard"   // the cause is far from the symptom, or seldom matters
)

// Levels returns all levels in their order.
func Levels() []Level { return []Level{Easy, Middle, Hard} }

// A Bug is an entry of the catalogue: a mutant, and how a person meets it.
type Bug struct {
	Mutant string // its name in testdata/mutants
	Level  Level

	// Flags are podcount's flags, separated by blanks. The word LISTEN stands for a free port of this machine.
	Flags string

	// Script is what happens in the playground, as its script.go explains. It may be empty.
	Script string

	// Seconds is how long the playground has to run until the symptom is certain.
	Seconds int

	// Symptom is what a user reports: what one sees, and what one expects. It never says why.
	Symptom string

	// Hints lead to the bug. The first names a step of the tour or a topic, and the second is nearer.
	Hints [2]string

	// Rule is the rule that the bug breaks, in the words of a page of the documentation.
	Rule string
	Page string

	// Known is a bug of this kind in a known project, or nil.
	Known *Known

	// Shows reports whether the output of a playground shows the symptom.
	Shows func(Record) bool
}

// Known is a bug of another project.
type Known struct {
	URL   string // of the issue or the pull request
	Story string // what happened, in one sentence or two
}

// name returns the project and the number, such as golang/go#1.
func (k Known) name() string {
	parts := strings.Split(strings.TrimPrefix(k.URL, "https://github.com/"), "/") // owner, name, issues or pull, number
	return parts[0] + "/" + parts[1] + "#" + parts[3]
}

// Bugs returns the catalogue. The number of a bug is its place there, counted from 1.
func Bugs() []Bug { return slices.Concat(easyBugs(), middleBugs(), hardBugs()) }

// duration returns how long the playground has to run until the symptom is certain.
func (b Bug) duration() time.Duration { return time.Duration(b.Seconds) * time.Second }

// flags returns podcount's flags, with a free port in place of LISTEN.
func (b Bug) flags() []string {
	words := strings.Fields(b.Flags)
	if at := slices.Index(words, "LISTEN"); at >= 0 {
		network := fakekube.NewTCPNetwork("127.0.0.1:0", &http.Server{}) // its port remains free
		defer network.Close()
		words[at] = network.Addr()
	}
	return words
}
