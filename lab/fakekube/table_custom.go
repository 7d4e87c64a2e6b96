package fakekube

import (
	"encoding/json"
	"time"
)

// customPrinter returns a printer with the columns of the custom resource's definition, or with the age if it has
// none.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#additional-printer-columns
func customPrinter(k kind) printer {
	definitions := objectsIn(k.crd["additionalPrinterColumns"])
	if len(definitions) == 0 {
		definitions = []Object{{
			"name":        "Age",
			"type":        "date",
			"description": createdDescription,
			"jsonPath":    ".metadata.creationTimestamp",
		}}
	}
	columns := []column{nameColumn}
	var cells []func(o Object, now time.Time) any
	for _, d := range definitions {
		path := TextIn(d, "jsonPath")
		description := TextIn(d, "description")
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + path
		}
		columns = append(columns, column{
			Name:        TextIn(d, "name"),
			Type:        TextIn(d, "type"),
			Format:      TextIn(d, "format"),
			Description: description,
			Priority:    numberIn(d, "priority"),
		})
		cells = append(cells, customCell(path, TextIn(d, "type")))
	}
	return printer{
		columns: columns,
		cells: func(o Object, now time.Time) []any {
			row := []any{nameCell(o)}
			for _, cell := range cells {
				row = append(row, cell(o, now))
			}
			return row
		},
	}
}

// customCell returns the function that makes the cells of a column. A cell shows the first value at the path, or nil
// if there is none of the column's type. If the path is invalid, each cell shows the error.
func customCell(path, kind string) func(o Object, now time.Time) any {
	steps, err := parseJSONPath(path)
	if err != nil {
		return func(Object, time.Time) any { return err.Error() }
	}
	return func(o Object, now time.Time) any {
		found := steps.find(o)
		if len(found) == 0 {
			return nil
		}
		return cellOf(found[0], kind, now)
	}
}

// cellOf converts a value to a column's type, or returns nil.
func cellOf(v any, kind string, now time.Time) any {
	switch kind {
	case "integer":
		if number, isNumber := v.(float64); isNumber {
			return int64(number)
		}
	case "number":
		if number, isNumber := v.(float64); isNumber {
			return number
		}
	case "boolean":
		if isTrue, isBool := v.(bool); isBool {
			return isTrue
		}
	case "date":
		if moment, isText := v.(string); isText {
			return elapsed(moment, now)
		}
	case "string":
		return textOf(v)
	}
	return nil
}

// textOf formats a value like kubectl's JSONPath.
func textOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "<no value>"
	case string:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen: stored objects come from JSON
	}
	return string(text)
}
