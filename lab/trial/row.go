package trial

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Row is one fault, and how it happens to a program.
type Row struct {
	Group string // such as "watches end"
	Name  string // unique among the rows, such as "watch cut"

	Happens string // what happens, as a sentence
	Why     string // why it happens in real clusters, as a sentence
	Report  string // the address of a public report of it

	needs need
	limit time.Duration // how long after the end of the fault the program may take; 0 means usualLimit
	play  func(s *scene)
}

// need is what a row needs, apart from a program and a server. Needs can be combined.
type need int

const (
	needsFake       need = 1 << iota // the API server must be the fake
	needsProcess                     // the program must be a process, which can be frozen
	needsElection                    // the program must elect a leader
	needsCredential                  // the program must take its credential from the kubeconfig
	needsPods                        // the program's job must be to count pods
	needsHours                       // the row takes hours
)

const (
	// usualLimit is how long after the end of a fault a program may take to be right again. It is the longest backoff of
	// common clients, which is 30 s, with all its jitter.
	usualLimit = 60 * time.Second

	// silentLimit is the limit if nothing tells the program that it waits in vain. A server that has just started sends
	// its first bookmark after two minutes, so nobody can know earlier, and it is fair to give some time more.
	silentLimit = 200 * time.Second

	// tokenLimit is the limit for a new token. client-go, which others take as their model, reads the file once a minute.
	tokenLimit = 2 * time.Minute
)

// groups holds all rows. The easiest group comes first.
var groups = []struct {
	name string
	rows []Row
}{
	{"calm", calm},
	{"watches end", watchesEnd},
	{"lists fail", listsFail},
	{"the server", serverFails},
	{"writes", writesFail},
	{"credentials", credentials},
	{"itself", itself},
	{"company", company},
}

// Rows returns all rows, in their order.
func Rows() (rows []Row) {
	for _, group := range groups {
		for _, row := range group.rows {
			row.Group = group.name
			rows = append(rows, row)
		}
	}
	return rows
}

// named reports whether the name or the group of the row contains one of the words. Without words, it is true.
func (r Row) named(words []string) bool {
	return len(words) == 0 || slices.ContainsFunc(words, r.contains)
}

func (r Row) contains(word string) bool {
	return strings.Contains(r.Group+"/"+r.Name, strings.ToLower(word))
}

// choose returns those of the rows that the words name. It is an error if one of them names none.
func choose(rows []Row, words []string) ([]Row, error) {
	for _, word := range words {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.contains(word) }) {
			var names []string
			for _, row := range rows {
				names = append(names, row.Group+"/"+row.Name)
			}
			return nil, fmt.Errorf("no row has %q in its group or name; there are %s", word, strings.Join(names, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return !r.named(words) }), nil
}
