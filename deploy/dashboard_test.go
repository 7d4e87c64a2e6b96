package deploy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// dashboard has the fields of dashboard.json that the tests read: https://grafana.com/docs/grafana/latest/dashboards/
type dashboard struct {
	Templating struct{ List []variable }
	Panels     []panel
}

// variable is a choice at the top of the dashboard.
type variable struct {
	Name, Type, Description, Definition string
	Query                               any
}

type panel struct {
	ID                 int
	Title, Description string
	Datasource         datasource
	GridPos            struct{ X, Y, W, H int }
	Targets            []target
}

// target is a query of a panel.
type target struct {
	Datasource         datasource
	Expr, LegendFormat string
}

type datasource struct{ Type, UID string }

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(testkit.ReadFile(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 10 || len(d.Templating.List) < 3 {
		t.Fatalf("there are %d panels, want 10 or more, and %d variables, want 3 or more",
			len(d.Panels), len(d.Templating.List))
	}
	return d
}

var labelValuesPattern = regexp.MustCompile(`^label_values\((.*), ([a-z]+)\)$`)

func TestVariablesOfTheDashboardUseLabelsThatExist(t *testing.T) {
	for _, v := range readDashboard(t).Templating.List {
		if v.Type == "datasource" {
			continue
		}
		t.Run(v.Name, func(t *testing.T) {
			match := labelValuesPattern.FindStringSubmatch(v.Definition)
			if match == nil {
				t.Fatalf("%q is not a query for the values of a label", v.Definition)
			}
			metric, label := match[1], match[2]
			checkQuery(t, metric)
			if !slices.Contains(scrapeLabels, label) {
				t.Errorf("Prometheus does not add a label %s", label)
			}
			// Grafana stores the query in two fields.
			query, _ := v.Query.(map[string]any)
			testkit.WantEqual(t, "the query", query["query"], any(v.Definition))
		})
	}
}

func TestPanelsOfTheDashboardUseMetricsThatExist(t *testing.T) {
	for _, p := range readDashboard(t).Panels {
		t.Run(p.Title, func(t *testing.T) {
			for _, query := range p.Targets {
				checkQuery(t, query.Expr)
				checkLegend(t, query)
			}
		})
	}
}

// checkLegend checks that the result of a query still has the labels that its legend names.
func checkLegend(t *testing.T, query target) {
	t.Helper()
	if !strings.Contains(query.Expr, " by (") {
		return
	}
	for _, match := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(query.LegendFormat, -1) {
		label := match[1]
		keepsLabel := regexp.MustCompile(`by \([^)]*\b` + label + `\b`).MatchString(query.Expr)
		if !keepsLabel {
			t.Errorf("the legend has %s, but the query does not sum by it: %s", label, query.Expr)
		}
	}
}

func TestDashboardExplainsItself(t *testing.T) {
	d := readDashboard(t)
	for _, v := range d.Templating.List {
		if v.Description == "" {
			t.Errorf("$%s has no description", v.Name)
		}
	}
	for i, p := range d.Panels {
		testkit.WantNumber(t, "the id of the panel "+p.Title, p.ID, i+1)
		if p.Title == "" || p.Description == "" || strings.Contains(p.Description, "\n") {
			t.Errorf("panel %d has the title %q and the description %q", p.ID, p.Title, p.Description)
		}
	}
}

func TestPanelsOfTheDashboardDoNotOverlap(t *testing.T) {
	const columns = 24
	panelOn := map[[2]int]string{} // the title of the panel on each cell
	for _, p := range readDashboard(t).Panels {
		at := p.GridPos
		if at.X+at.W > columns {
			t.Errorf("%s is wider than the dashboard", p.Title)
		}
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				cell := [2]int{x, y}
				if panelOn[cell] != "" {
					t.Fatalf("%s overlaps %s", p.Title, panelOn[cell])
				}
				panelOn[cell] = p.Title
			}
		}
	}
}

func TestPanelsOfTheDashboardFollowTheVariables(t *testing.T) {
	d := readDashboard(t)
	variables := []string{"__rate_interval"} // This variable is Grafana's own.
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	chosen := datasource{"prometheus", "${datasource}"}
	for _, p := range d.Panels {
		t.Run(p.Title, func(t *testing.T) {
			testkit.WantEqual(t, "the data source", p.Datasource, chosen)
			for _, query := range p.Targets {
				testkit.WantEqual(t, "the data source of a query", query.Datasource, chosen)
				testkit.WantText(t, query.Expr, `{job=~"$job",namespace=~"$namespace",instance=~"$instance"}`)
				for _, match := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(query.Expr, -1) {
					if !slices.Contains(variables, match[1]) {
						t.Errorf("there is no variable %s", match[1])
					}
				}
			}
		})
	}
}

func TestQueriesOfTheDashboardAreValid(t *testing.T) {
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, p := range readDashboard(t).Panels {
		for j, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			rules += fmt.Sprintf("  - {record: panel%d_%d, expr: %s}\n", i, j, strconv.Quote(expr))
		}
	}
	runPromtool(t, "check", "rules", writeTemp(t, "dashboard.yaml", rules))
}
