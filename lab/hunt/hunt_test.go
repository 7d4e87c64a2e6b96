package hunt

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// newHunt returns a hunt in this checkout that has begun with the bug of a mutant, unless that is "". It remembers
// what it does in a directory of the test.
func newHunt(t *testing.T, mutant string) (h *Hunt, out *testkit.Buffer) {
	t.Helper()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	out = &testkit.Buffer{}
	h = &Hunt{
		Checkout: checkout,
		Bin:      t.TempDir(),
		Out:      out,
		Choose:   func(int) int { return 0 },
		Play: func(string, []string) error {
			t.Error("the playground was started")
			return nil
		},
	}
	if mutant != "" {
		s, err := readState(h.Bin)
		bug, _ := find(mutant)
		s.begin(bug)
		if err := errors.Join(err, s.write(h.Bin)); err != nil {
			t.Fatal(err)
		}
	}
	return h, out
}

// wantUsage checks that an error is one about the command, with a text in it.
func wantUsage(t *testing.T, what string, err error, want string) {
	t.Helper()
	testkit.WantError(t, what, err, want)
	if !errors.As(err, new(UsageError)) {
		t.Errorf("%s: the error is not one about the command: %v", what, err)
	}
}

func TestHuntBuildsABrokenPodcountAndSaysOnlyWhatAUserSees(t *testing.T) {
	h, out := newHunt(t, "")
	var played [][]string
	h.Play = func(program string, args []string) error {
		played = append(played, append([]string{program}, args...))
		return nil
	}
	if err := h.Start(t.Context(), "easy", ""); err != nil {
		t.Fatal(err)
	}
	bug := Bugs()[0]
	testkit.WantText(t, out.String(), "Bug 1 of ", "of the level easy", "You have found 0 of ",
		"A user reports:\n\n    I scaled", "6s: scale web 5", "Next:\n  make bug ANSWER=Type.method ")
	if strings.Contains(out.String(), bug.Mutant) {
		t.Errorf("the name of the mutant is told: %s", out.String())
	}
	program := filepath.Join(h.Bin, "podcount-with-a-bug")
	want := append([]string{filepath.Join(h.Bin, "playground"), "-script", bug.Script, program, h.Bin},
		strings.Fields(bug.Flags)...)
	testkit.WantEqual(t, "the playground's arguments", played, [][]string{want})
	if _, err := os.Stat(program); err != nil {
		t.Error(err)
	}
	remembered := testkit.ReadFile(t, filepath.Join(h.Bin, stateFile))
	if strings.Contains(remembered, bug.Mutant) {
		t.Errorf("the state tells the bug at a glance: %s", remembered)
	}

	if err := h.Start(t.Context(), "hard", "7"); err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, out.String(), "A hunt is on already, and goes on.")
	testkit.WantNumber(t, "times that the playground ran", len(played), 2)
	testkit.WantEqual(t, "the second time", played[1], want)
}

func TestRightAnswerIsFollowedByTheStory(t *testing.T) {
	for _, answer := range []string{"withUID", "withUID()", "`withUID`", "..withUID"} {
		h, out := newHunt(t, "version-sent")
		if err := h.Answer(answer); err != nil {
			t.Fatal(err)
		}
		testkit.WantText(t, out.String(), "Right: bug 5 is in withUID. You needed 1 answer and 0 hints.",
			"The bug: A patch carries the resourceVersion.", "    watch.go:",
			"    + metadata := map[string]any{\"uid\": uid, \"res",
			"in docs/change/internals.md:\n\n    A write carries the uid, and no resourceVersion.",
			"make mutants ONLY=version-sent", "TestSimulation", "NVIDIA/gpu-operator#1873: The operator",
			"https://github.com/NVIDIA/gpu-operator/pull/1873", "You have found 1 of ", "Next:\n  make bug ")
		wantUsage(t, "a second answer", h.Answer(answer), "no hunt is on")
	}
}

func TestAnswerMayNameAMethodInSeveralWays(t *testing.T) {
	for _, answer := range []string{"Queue.Done", "Done", "(*Queue).Done", "Queue.Done(key, err)"} {
		h, out := newHunt(t, "failed-key-is-forgotten")
		if err := h.Answer(answer); err != nil {
			t.Fatal(err)
		}
		testkit.WantText(t, out.String(), "Right: bug ")
	}
	h, out := newHunt(t, "all-wait-for-the-same-token")
	if err := h.Answer("retry.Bucket.reserve"); err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, out.String(), "Right: bug ")
}

func TestEachPlaceOfABugIsARightAnswer(t *testing.T) {
	h, err := newHunt(t, "")
	all, _ := h.mutants()
	if len(all) == 0 {
		t.Fatal(err)
	}
	for _, bug := range Bugs() {
		for _, place := range all[bug.Mutant].Places() {
			if !isRight(plain(place.Name), all[bug.Mutant].Places()) {
				t.Errorf("%s: %s is a wrong answer", bug.Mutant, place.Name)
			}
		}
	}
}

func TestWrongAnswersLeadToTheFile(t *testing.T) {
	h, out := newHunt(t, "version-sent")
	if err := h.Answer("Store.apply"); err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, out.String(), "No, Store.apply is sound. That was wrong answer 1 about bug 5.", "HINT=yes ")
	if strings.Contains(out.String(), "HINT=file") {
		t.Errorf("the file is offered too early: %s", out.String())
	}
	if err := h.Answer("Queue.Get"); err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, out.String(), "That was wrong answer 2 about bug 5.", "make bug HINT=file ")
	if err := h.Hint("file"); err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, out.String(), "The bug is in watch.go.")
	if err := h.Answer("withUID"); err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, out.String(), "You needed 3 answers and 0 hints.")
}

func TestHintsComeOneByOne(t *testing.T) {
	h, out := newHunt(t, "version-sent")
	for range 3 {
		if err := h.Hint("yes"); err != nil {
			t.Fatal(err)
		}
	}
	testkit.WantText(t, out.String(), "Hint 1 of 2: Step 7 of the tour", "Hint 2 of 2: watch.go has the patch.",
		"There are no more hints, but `make bug HINT=file` names the file.")
}

func TestCommandThatIsWrongSaysTheWayOut(t *testing.T) {
	h, _ := newHunt(t, "")
	wantUsage(t, "an answer without a hunt", h.Answer("Queue.Get"), "no hunt is on: `make bug` begins one")
	wantUsage(t, "a hint without a hunt", h.Hint("yes"), "no hunt is on")
	wantUsage(t, "a level", h.Start(t.Context(), "middel", ""), "LEVEL=easy`, middle or hard")
	wantUsage(t, "a number", h.Start(t.Context(), "", "0"), "with a number from 1 to ")
	wantUsage(t, "no number", h.Start(t.Context(), "", "seven"), "there is no bug seven")
	h, _ = newHunt(t, "version-sent")
	for _, answer := range []string{"Queue.Got", "yes", "()", "TestSimulation", "testkit.WantText"} {
		wantUsage(t, answer, h.Answer(answer), "This does not count as an answer")
	}
	wantUsage(t, "a hint", h.Hint("now"), "HINT=file for the file")
	h.Checkout = t.TempDir()
	wantUsage(t, "another directory", h.Answer("Queue.Get"), "in the top directory of the checkout")
}

func TestStudentMayGiveUp(t *testing.T) {
	h, out := newHunt(t, "deleted-is-a-change")
	if err := h.Answer("none"); err != nil {
		t.Fatal(err)
	}
	testkit.WantText(t, out.String(), "You have given up bug 1. It was Store.apply.",
		"The bug: DELETED is taken as any event.", "You have found 0 of ", "Next:\n  make bug ")
	s, err := readState(h.Bin)
	if err != nil {
		t.Fatal(err)
	}
	next, err := h.choose(s, "", "")
	testkit.WantEqual(t, "the next bug", next.Mutant, Bugs()[1].Mutant)
	if err != nil {
		t.Error(err)
	}
}

func TestBugsThatWereFoundDoNotComeAgain(t *testing.T) {
	h, out := newHunt(t, "")
	s, err := readState(h.Bin)
	if err != nil {
		t.Fatal(err)
	}
	for _, bug := range easyBugs() {
		s.Found[bug.Mutant] = 1
	}
	next, err := h.choose(s, "", "")
	if err != nil || next.Level != Middle {
		t.Errorf("after all easy ones came %s, which is %s (%v)", next.Mutant, next.Level, err)
	}
	_, err = h.choose(s, "easy", "")
	wantUsage(t, "an easy one", err, "you have found all bugs of the level easy")
	again, err := h.choose(s, "", "1")
	testkit.WantEqual(t, "the bug that has this number", again.Mutant, Bugs()[0].Mutant)
	if err != nil {
		t.Error(err)
	}
	for _, bug := range Bugs() {
		s.Found[bug.Mutant] = 1
	}
	if err := s.write(h.Bin); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context(), "", ""); err != nil {
		t.Error(err)
	}
	testkit.WantText(t, out.String(), "You have found all bugs.")
}

func TestStateThatCannotBeReadSaysWhatToDelete(t *testing.T) {
	h, _ := newHunt(t, "")
	for _, text := range []string{"%", "bm90IEpTT04="} {
		testkit.WriteFiles(t, h.Bin, map[string]string{stateFile: text})
		testkit.WantError(t, text, h.Answer("none"), stateFile+" cannot be read: delete it")
	}
}

func TestBugThatDoesNotFitAnyMoreSaysTheWayOut(t *testing.T) {
	h, _ := newHunt(t, "")
	all, err := h.mutants()
	if err != nil {
		t.Fatal(err)
	}
	m := all["version-sent"]
	m.Broken = nil
	testkit.WantError(t, "the build", buildBroken(t.Context(), h.Checkout, m, "program"), "git restore .")
}

// lineNumber matches the number of a line behind the name of a file of Go, which changes often.
var lineNumber = regexp.MustCompile(`(\.go):\d+`)

func TestPageShowsWhatIsPrinted(t *testing.T) {
	h, out := newHunt(t, "no-rest-between-writes")
	bug, _ := find("no-rest-between-writes")
	s, err := readState(h.Bin)
	if err != nil {
		t.Fatal(err)
	}
	s.Found[Bugs()[0].Mutant] = 1
	h.introduce(s, bug, nil)
	if err := h.Answer("Brakes.write"); err != nil {
		t.Fatal(err)
	}
	page := testkit.ReadFile(t, "../../docs/learn/hunt.md")
	examples := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(page, -1)
	testkit.WantNumber(t, "examples in the page", len(examples), 1)
	for _, example := range examples {
		testkit.WantText(t, lineNumber.ReplaceAllString(out.String(), "$1"), lineNumber.ReplaceAllString(example[1], "$1"))
	}
}
