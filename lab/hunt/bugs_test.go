package hunt

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"podcount/lab/mutants"
	"podcount/lab/testkit"
)

// sentences matches a text of whole sentences.
var sentences = regexp.MustCompile(`^[A-Z\x60a-z].*[.?]$`)

func TestCatalogueHasBugsOfEachLevelThatFitTheCheckout(t *testing.T) {
	all, err := mutants.ReadAll(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]mutants.Mutant{}
	for _, m := range all {
		byName[m.Name] = m
	}
	count := map[Level]int{}
	for _, bug := range Bugs() {
		m, isThere := byName[bug.Mutant]
		delete(byName, bug.Mutant) // so that a second entry of the same mutant fails
		if !isThere || len(m.Places()) == 0 {
			t.Errorf("%s: there is no such mutant, it has an entry already, or nothing that one could answer", bug.Mutant)
		}
		for _, place := range m.Places() {
			if place.Dir != "." && !strings.HasPrefix(place.Dir, "internal/") {
				t.Errorf("%s: it breaks %s, which is no part of podcount", bug.Mutant, place.Dir)
			}
		}
		count[bug.Level]++
	}
	testkit.WantBetween(t, "bugs", len(Bugs()), 30, 100)
	testkit.WantNumber(t, "levels", len(count), len(Levels()))
	for _, level := range Levels() {
		testkit.WantBetween(t, "bugs of the level "+string(level), count[level], 8, 50)
	}
}

// word matches a name that may be an ordinary word.
var word = regexp.MustCompile(`^[A-Za-z][a-z]+$`)

func TestTextsOfTheCatalogueAreWholeSentencesThatDoNotNameTheAnswer(t *testing.T) {
	all, err := mutants.ReadAll(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	places := map[string][]mutants.Named{}
	for _, m := range all {
		places[m.Name] = m.Places()
	}
	for _, bug := range Bugs() {
		t.Run(bug.Mutant, func(t *testing.T) {
			texts := append([]string{bug.Symptom}, bug.Hints[:]...)
			if bug.Known != nil {
				texts = append(texts, bug.Known.Story)
			}
			for _, text := range texts {
				if !sentences.MatchString(text) {
					t.Errorf("this is no whole sentence: %s", text)
				}
			}
			for _, place := range places[bug.Mutant] {
				_, method, _ := strings.Cut(place.Name, ".")
				for _, text := range texts[:3] {
					isNamed := strings.Contains(text, place.Name) && !word.MatchString(place.Name)
					if isNamed || method != "" && strings.Contains(text, method) && !word.MatchString(method) {
						t.Errorf("this names %s: %s", place.Name, text)
					}
				}
			}
			testkit.WantBetween(t, "seconds", bug.Seconds, 5, 60)
		})
	}
}

// spaces matches white space, and the signs of Markdown that are not words.
var spaces = regexp.MustCompile(`[\s*|]+`)

func TestRulesOfTheCatalogueStandInTheirPages(t *testing.T) {
	pages := map[string]string{}
	for _, bug := range Bugs() {
		if pages[bug.Page] == "" {
			pages[bug.Page] = spaces.ReplaceAllString(testkit.ReadFile(t, filepath.Join("../..", bug.Page)), " ")
		}
		if bug.Rule == "" || !strings.Contains(pages[bug.Page], spaces.ReplaceAllString(bug.Rule, " ")) {
			t.Errorf("%s: %s does not say: %s", bug.Mutant, bug.Page, bug.Rule)
		}
	}
}

// heading matches the name of a heading in a hint, and the page that has it.
var heading = regexp.MustCompile("`(\\w+\\.md)` says under \"([^\"]+)\"")

func TestHeadingsInHintsAreThere(t *testing.T) {
	count := 0
	for _, bug := range Bugs() {
		for _, found := range heading.FindAllStringSubmatch(strings.Join(bug.Hints[:], " "), -1) {
			count++
			files, err := filepath.Glob("../../docs/*/" + found[1])
			if err != nil || len(files) != 1 {
				t.Fatalf("%s: pages named %s: %q (%v)", bug.Mutant, found[1], files, err)
			}
			page := testkit.ReadFile(t, files[0])
			if !regexp.MustCompile(`(?m)^#+ ` + regexp.QuoteMeta(found[2]) + `$`).MatchString(page) {
				t.Errorf("%s: %s has no heading %q", bug.Mutant, found[1], found[2])
			}
		}
	}
	testkit.WantBetween(t, "headings in hints", count, 5, 50)
}

func TestBugsOfOthersHaveAnAddressWithANumber(t *testing.T) {
	address := regexp.MustCompile(`^https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/[1-9]\d*$`)
	count := 0
	for _, bug := range Bugs() {
		if bug.Known == nil {
			continue
		}
		count++
		if !address.MatchString(bug.Known.URL) {
			t.Errorf("%s: the address is %s", bug.Mutant, bug.Known.URL)
		}
	}
	testkit.WantBetween(t, "bugs of others", count, 30, len(Bugs()))
	testkit.WantEqual(t, "the name", Known{URL: "https://github.com/golang/go/issues/374"}.name(), "golang/go#374")
}

func TestPortIsChosenWhereTheFlagsNameNone(t *testing.T) {
	got := Bug{Flags: "-v 2 -listen LISTEN"}.flags()
	if len(got) != 4 || !strings.HasPrefix(got[3], "127.0.0.1:") {
		t.Errorf("got %q", got)
	}
	got = Bug{Flags: "-v 2"}.flags()
	if len(got) != 2 {
		t.Errorf("got %q", got)
	}
}

func TestStatusesOfARecordAreRead(t *testing.T) {
	r := Record{
		{1, "playground: the server is gone"},
		{2, "playground: 5 s: 30 pods, and the label says -; in 5 s, podcount sent no request"},
		{3, "playground: 10 s: 1 pod, and the label says 1; in 5 s, podcount sent 31 requests: 21 watches, 9 patches and " +
			"1 list"},
		{4, "playground: 15 s: 31 pods, and the label says 30; in 5 s, podcount sent 1 request: 1 patch"},
		{5, "playground: 20 s: 31 pods, and the label says 30; in 5 s, podcount sent 2 requests: 2 watches"},
	}
	testkit.WantNumber(t, "statuses", len(r.statuses()), 4)
	testkit.WantNumber(t, "watches at most", r.most("watch"), 21)
	testkit.WantNumber(t, "patches in all", r.sum("patch"), 10)
	testkit.WantNumber(t, "patches after the second status", r.withoutStatuses(2).sum("patch"), 1)
	testkit.WantEqual(t, "whether the label ends wrong", r.endsWrong(), true)
	testkit.WantEqual(t, "whether it did before", r[:4].endsWrong(), false)
	testkit.WantNumber(t, "lines after the list", len(r.after("1 list")), 3)
	if at := r.first("the server is back"); at < r[4].At {
		t.Errorf("a line that has not come came at %v", at)
	}
}
