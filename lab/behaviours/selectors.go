package behaviours

import (
	"encoding/json"
	"net/url"

	"podcount/lab/testkit"
)

func sameSelectors(w *world) {
	var selectors struct {
		LabelSelectorsAccepted, LabelSelectorsRefused []string
		FieldSelectorsAccepted, FieldSelectorsRefused []string
	}
	err := json.Unmarshal([]byte(testkit.ReadFile(w, "testdata/selectors.json")), &selectors)
	if err != nil {
		w.Fatal(err)
	}
	accepted := func(parameter string, selectors []string) {
		for _, selector := range selectors {
			_, err := w.try("GET", w.pods()+"?limit=1&"+parameter+"="+url.QueryEscape(selector), nil)
			if err != nil {
				w.Errorf("%s %q: %v", parameter, selector, err)
			}
		}
	}
	refused := func(parameter string, selectors []string) {
		for _, selector := range selectors {
			_, err := w.try("GET", w.pods()+"?limit=1&"+parameter+"="+url.QueryEscape(selector), nil)
			w.wantStatus(parameter+" "+selector, err, 400, "BadRequest")
		}
	}
	accepted("labelSelector", selectors.LabelSelectorsAccepted)
	refused("labelSelector", selectors.LabelSelectorsRefused)
	accepted("fieldSelector", selectors.FieldSelectorsAccepted)
	refused("fieldSelector", selectors.FieldSelectorsRefused)
}
