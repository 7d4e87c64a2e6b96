package docs_test

import (
	"path"
	"regexp"
	"testing"

	"podcount/lab/testkit"
)

// placePatterns match a place and the names that are declared there.
var placePatterns = []*regexp.Regexp{
	// `cache.go`: `Store.apply`, `NumberIndex`
	regexp.MustCompile("`(?P<place>[\\w./-]+)`:\\s(?P<names>`[\\w.]+`(?:(?:, and|,| and)\\s`[\\w.]+`)*)"),
	// `Store`, `Kind` in `cache.go`
	regexp.MustCompile("(?P<names>`[\\w.]+`(?:(?:, and|,| and)\\s`[\\w.]+`)*)\\sin\\s`(?P<place>[\\w./-]+)`"),
}

// fewestPlacements is how many the pages have for each pattern at least. With fewer, the pattern no longer matches what
// they write.
const fewestPlacements = 10

// placement is a place and the names that a page says are declared there.
type placement struct{ place, names string }

// placementsIn returns the placements of a pattern in a block.
func placementsIn(b block, pattern *regexp.Regexp) (placements []placement) {
	if b.isCode() {
		return nil
	}
	for _, found := range pattern.FindAllStringSubmatch(withoutLinks(b.text()), -1) {
		placements = append(placements, placement{
			place: found[pattern.SubexpIndex("place")],
			names: found[pattern.SubexpIndex("names")],
		})
	}
	return placements
}

func TestEachIdentifierIsDeclaredWhereThePageSaysSo(t *testing.T) {
	d := declarationsOfTree(t)
	pages := loadPages(t)
	for _, pattern := range placePatterns {
		checked := 0
		for _, p := range pages {
			for _, b := range p.blocks {
				for _, found := range placementsIn(b, pattern) {
					if d.checkPlacement(t, p.at(b.line), found) {
						checked++
					}
				}
			}
		}
		testkit.WantBetween(t, "matches of "+pattern.String(), checked, fewestPlacements, 1000)
	}
}

// groups are the directories of packages that pages call only by their names.
var groups = []string{"internal/api", "internal/view", "internal/run", "internal/control", "lab"}

// inPackages matches the path of a package, or of a file in one.
var inPackages = regexp.MustCompile(`^(internal|lab)/`)

// checkPlacement checks that names are declared in a file or package. It returns false if the place is neither.
func (d *declarations) checkPlacement(t *testing.T, at string, found placement) bool {
	t.Helper()
	declared := d.inPlace[pathIn(found.place)]
	for _, group := range groups {
		if declared == nil {
			declared = d.inPlace[path.Join(group, found.place)]
		}
	}
	if declared == nil {
		mustBeGo := path.Ext(found.place) == ".go" || inPackages.MatchString(found.place)
		if mustBeGo {
			t.Errorf("%s: there is no Go code in %s", at, found.place)
		}
		return false
	}
	for _, name := range regexp.MustCompile(`[\w.]+`).FindAllString(found.names, -1) {
		if name == "and" || path.Ext(name) == ".go" {
			continue
		}
		if !declared[name] {
			t.Errorf("%s: %s does not declare %s", at, found.place, name)
		}
	}
	return true
}
