package options

import (
	"io"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

// registerOwn registers a flag of each type, until the test ends.
func registerOwn(t *testing.T) (limit Flag[int], name Flag[string], pause Flag[time.Duration], loud Flag[bool]) {
	before := ownFlags
	t.Cleanup(func() { ownFlags = before })
	limit = NewFlag("crowded-limit", 100, "N", "warn of nodes with more than N pods")
	name = NewFlag("crowded-name", "crowd", "NAME", "call it this")
	pause = NewFlag("crowded-pause", time.Minute, "DURATION", "warn this often")
	loud = NewFlag("crowded-loud", false, "", "warn in capitals")
	return limit, name, pause, loud
}

func TestOwnFlagsAreParsed(t *testing.T) {
	limit, name, pause, loud := registerOwn(t)
	rows := []struct {
		line      string
		wantLimit int
		wantName  string
		wantPause time.Duration
		wantLoud  bool
	}{
		{"", 100, "crowd", time.Minute, false},
		{"-crowded-limit=7 -crowded-name=x -crowded-pause=2s -crowded-loud", 7, "x", 2 * time.Second, true},
	}
	for _, row := range rows {
		t.Run(row.line, func(t *testing.T) {
			o := parse(t, row.line)
			testkit.WantEqual(t, "the limit", limit.Of(o), row.wantLimit)
			testkit.WantEqual(t, "the name", name.Of(o), row.wantName)
			testkit.WantEqual(t, "the pause", pause.Of(o), row.wantPause)
			testkit.WantEqual(t, "loud", loud.Of(o), row.wantLoud)
		})
	}
}

func TestEachParseHasOwnFlagsOfItsOwn(t *testing.T) {
	limit, _, _, _ := registerOwn(t)
	first := parse(t, "-crowded-limit=1")
	second := parse(t, "-crowded-limit=2")
	testkit.WantEqual(t, "the limit of the first", limit.Of(first), 1)
	testkit.WantEqual(t, "the limit of the second", limit.Of(second), 2)
}

func TestWrongValueOfAnOwnFlagIsAUsageError(t *testing.T) {
	registerOwn(t)
	wantUsageError(t, "-crowded-limit=many", `invalid value "many" for flag -crowded-limit`)
	wantUsageError(t, "-crowded-pause=1", `missing unit in duration "1"`)
}

func TestOwnFlagsHaveASectionOfTheHelp(t *testing.T) {
	without := printed(t, "-h")
	registerOwn(t)
	const section = `
Of your own controllers
  -crowded-limit N          warn of nodes with more than N pods (default 100)
  -crowded-name NAME        call it this (default crowd)
  -crowded-pause DURATION   warn this often (default 1m)
  -crowded-loud             warn in capitals
`
	want := strings.TrimSuffix(without, helpEnd) + section + helpEnd
	testkit.WantEqual(t, "the help", printed(t, "-h"), want)
}

func TestManifestPassesOwnFlagsOn(t *testing.T) {
	registerOwn(t)
	text := printed(t, "-manifest=podcount -crowded-limit=7 -crowded-loud")
	testkit.WantText(t, text, `- "-crowded-limit=7"`, `- "-crowded-loud=true"`)
}

func TestOwnFlagThatIsThereAlreadyPanics(t *testing.T) {
	registerOwn(t)
	NewFlag("qps", 1, "N", "there is one of this name")
	defer func() {
		if recover() == nil {
			t.Error("nothing happened")
		}
	}()
	Parse(nil, io.Discard, testProgram)
}
