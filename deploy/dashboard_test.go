package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboard is what the tests read of dashboard.json: https://grafana.com/docs/grafana/latest/dashboards/
type dashboard struct {
	Templating struct {
		List []struct {
			Name, Type, Description, Definition string
			Query                               any
		}
	}
	Panels []struct {
		ID                 int
		Title, Description string
		Datasource         datasource
		GridPos            struct{ X, Y, W, H int }
		Targets            []struct {
			Datasource         datasource
			Expr, LegendFormat string
		}
	}
}

type datasource struct{ Type, UID string }

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 10 || len(d.Templating.List) < 3 {
		t.Fatalf("there are %d panels and %d variables", len(d.Panels), len(d.Templating.List))
	}
	return d
}

func TestEveryMetricAndLabelInTheDashboardExists(t *testing.T) {
	d := readDashboard(t)
	labelValues := regexp.MustCompile(`^label_values\((.*), ([a-z]+)\)$`)
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			t.Errorf("$%s: %q is no query of label values", v.Name, v.Definition)
			continue
		}
		checkQuery(t, "$"+v.Name, m[1])
		if !slices.Contains(scrapeLabels, m[2]) {
			t.Errorf("$%s: no target has the label %s", v.Name, m[2])
		}
		if query, _ := v.Query.(map[string]any); query["query"] != v.Definition {
			t.Errorf("$%s: %v is asked, %s is said", v.Name, query["query"], v.Definition)
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			checkQuery(t, p.Title, target.Expr)
			for _, m := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				if strings.Contains(target.Expr, " by (") && !regexp.MustCompile(`by \([^)]*\b`+m[1]+`\b`).MatchString(target.Expr) {
					t.Errorf("%s: its legend has %s, by which it is not summed", p.Title, m[1])
				}
			}
		}
	}
}

func TestDashboardExplainsItselfAndAsksTheChosenDatasource(t *testing.T) {
	d := readDashboard(t)
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if v.Description == "" {
			t.Errorf("$%s has no description", v.Name)
		}
	}
	taken := map[[2]int]string{}
	for i, p := range d.Panels {
		if p.ID != i+1 || p.Title == "" || p.Description == "" || strings.Contains(p.Description, "\n") {
			t.Errorf("panel %d, %q: it has the id %d and says %q", i+1, p.Title, p.ID, p.Description)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s lies on %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			want := datasource{"prometheus", "${datasource}"}
			if p.Datasource != want || target.Datasource != want {
				t.Errorf("%s asks %v and %v", p.Title, p.Datasource, target.Datasource)
			}
			if !strings.Contains(target.Expr, `{job=~"$job",namespace=~"$namespace",instance=~"$instance"}`) {
				t.Errorf("%s is not limited to what was chosen: %s", p.Title, target.Expr)
			}
			for _, m := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				if m[1] != "__rate_interval" && !slices.Contains(variables, m[1]) {
					t.Errorf("%s: there is no variable %s", p.Title, m[1])
				}
			}
		}
	}
}

func TestQueriesOfTheDashboardAreUnderstood(t *testing.T) {
	rules := "groups:\n- name: dashboard\n  rules:\n"
	for i, p := range readDashboard(t).Panels {
		for j, target := range p.Targets {
			expr := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			rules += fmt.Sprintf("  - {record: panel%d_%d, expr: %s}\n", i, j, quote(expr))
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "check", "rules", file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
