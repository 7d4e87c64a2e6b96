package fakekube

import (
	"fmt"
	"time"
)

// table is a list in the form that kubectl prints.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables
type table struct {
	Kind       string     `json:"kind"`
	APIVersion string     `json:"apiVersion"`
	Metadata   listMeta   `json:"metadata"`
	Columns    []column   `json:"columnDefinitions"`
	Rows       []tableRow `json:"rows"`
}

// column defines a column of a table.
type column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`   // an OpenAPI type such as "string" or "integer", or "date"
	Format      string `json:"format"` // "name" if the column shows the object's name
	Description string `json:"description"`
	Priority    int    `json:"priority"` // above 0: only printed with -o wide
}

// tableRow is the row of one object.
type tableRow struct {
	Cells      []any    `json:"cells"`
	Conditions []Object `json:"conditions,omitempty"` // such as "Completed"
	Object     any      `json:"object"`
}

// printer makes the tables of a kind.
type printer struct {
	columns []column

	// cells returns the cells of an object's row.
	cells func(o Object, now time.Time) []any

	// conditions returns the conditions of an object's row. A nil function means none.
	conditions func(o Object) []Object
}

// printers holds the printers of built-in kinds, by qualified resource. Of others, a table has only names and ages.
var printers = map[string]printer{
	"pods":                       podPrinter,
	"nodes":                      nodePrinter,
	"namespaces":                 namespacePrinter,
	"events":                     eventPrinter,
	"leases.coordination.k8s.io": leasePrinter,

	"roles.rbac.authorization.k8s.io":                createdPrinter,
	"clusterroles.rbac.authorization.k8s.io":         createdPrinter,
	"customresourcedefinitions.apiextensions.k8s.io": createdPrinter,
}

// printer returns the printer of the kind.
func (k kind) printer() printer {
	if k.isCustom() {
		return customPrinter(k)
	}
	if p, hasOwn := printers[k.place()]; hasOwn && !k.isAdded {
		return p
	}
	return agePrinter
}

// checkTableParameters reports whether the parameters of a table are valid. If not, it answers 400.
func (r *request) checkTableParameters() bool {
	switch include := r.query.Get("includeObject"); include {
	case "", "None", "Metadata", "Object":
		return true
	default:
		r.badRequest(fmt.Sprintf("Unable to convert to Table as requested: includeObject: "+
			"Invalid value: %q: must be 'Metadata', 'Object', 'None', or empty", include))
		return false
	}
}

// tableOf returns the table of some objects.
func (r *request) tableOf(meta listMeta, objects []Object) table {
	p := r.kind.printer()
	now := time.Now()
	rows := make([]tableRow, len(objects))
	for i, o := range objects {
		rows[i].Cells = p.cells(o, now)
		if p.conditions != nil {
			rows[i].Conditions = p.conditions(o)
		}
		switch r.query.Get("includeObject") {
		case "None":
		case "Object":
			whole := *r
			whole.view = view{}
			rows[i].Object = whole.render(o, false)
		default:
			rows[i].Object = r.renderMetadata(o)
		}
	}
	return table{viewTable, r.view.apiVersion(), meta, p.columns, rows}
}

// nameColumn and ageColumn are in almost all tables.
var (
	nameColumn = column{Name: "Name", Type: "string", Format: "name", Description: nameDescription}
	ageColumn  = column{Name: "Age", Type: "string", Description: createdDescription}
)

const (
	nameDescription = "Name must be unique within a namespace. Is required when creating resources, although some " +
		"resources may allow a client to request the generation of an appropriate name automatically. Name is " +
		"primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: " +
		"https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"

	createdDescription = "CreationTimestamp is a timestamp representing the server time when this object was " +
		"created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not " +
		"set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. " +
		"Null for lists. More info: " +
		"https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)

// nameCell returns the object's name.
func nameCell(o Object) string { return TextIn(MetaOf(o), "name") }

// ageCell returns the object's age.
func ageCell(o Object, now time.Time) string {
	return elapsed(TextIn(MetaOf(o), "creationTimestamp"), now)
}

// elapsed returns the time since a moment in RFC 3339.
func elapsed(moment string, now time.Time) string {
	if moment == "" {
		return "<unknown>"
	}
	at, err := time.Parse(time.RFC3339, moment)
	if err != nil {
		return "<invalid>"
	}
	return shortDuration(now.Sub(at))
}

// shortDuration formats a duration like kubectl's ages: in one or two units, depending on its size.
func shortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	const year = 365 * day
	switch {
	case d <= -2*time.Second:
		return "<invalid>"
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return inUnits(d, time.Second, "s", 0, "")
	case d < 10*time.Minute:
		return inUnits(d, time.Minute, "m", time.Second, "s")
	case d < 3*time.Hour:
		return inUnits(d, time.Minute, "m", 0, "")
	case d < 8*time.Hour:
		return inUnits(d, time.Hour, "h", time.Minute, "m")
	case d < 2*day:
		return inUnits(d, time.Hour, "h", 0, "")
	case d < 8*day:
		return inUnits(d, day, "d", time.Hour, "h")
	case d < 2*year:
		return inUnits(d, day, "d", 0, "")
	case d < 8*year:
		return inUnits(d, year, "y", day, "d")
	}
	return inUnits(d, year, "y", 0, "")
}

// inUnits formats a duration in a unit. If smaller is not 0 and a remainder exists, it appends that in the smaller
// unit.
func inUnits(d, unit time.Duration, name string, smaller time.Duration, smallerName string) string {
	text := fmt.Sprint(int(d/unit), name)
	if smaller == 0 {
		return text
	}
	if rest := int(d % unit / smaller); rest > 0 {
		text += fmt.Sprint(rest, smallerName)
	}
	return text
}

// numberIn returns the whole number at a key, or 0.
func numberIn(o Object, key string) int {
	v, _ := o[key].(float64)
	return int(v)
}
