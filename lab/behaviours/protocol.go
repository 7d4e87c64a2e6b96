package behaviours

import (
	"encoding/json"
	"net/url"
	"slices"
	"testing"

	"podcount/internal/api/kube"
	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func pagedList(w *world) {
	want := []string{"a", "b", "c"}
	for _, name := range want {
		w.addPod(name, "pages")
	}
	var got []string
	path := w.pods() + "?labelSelector=group%3Dpages&limit=2"
	for next := path; next != ""; {
		page := w.send("GET", next, nil)
		for _, item := range page["items"].([]any) {
			got = append(got, fakekube.KeyOf(item.(object)).Name)
		}
		token := fakekube.TextIn(fakekube.MetaOf(page), "continue")
		next = ""
		if token != "" {
			next = path + "&continue=" + url.QueryEscape(token)
		}
	}
	testkit.WantEqual(w, "the pods of all pages", got, want)
}

func metadataOnly(w *world) {
	w.addPod("a", "metadata")
	for _, row := range []struct {
		accept, kind string
		hasSpec      bool
	}{
		{kube.Accept(true, "PartialObjectMetadataList", wire.JSON), "PartialObjectMetadataList", false},
		{"", "PodList", true},
	} {
		w.Run(row.kind, func(t *testing.T) {
			resp, err := w.client.Do(t.Context(), kube.Request{
				Method: "GET",
				Path:   w.pods(),
				Query:  url.Values{"labelSelector": {"group=metadata"}},
				Accept: row.accept,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var list struct {
				Kind  string
				Items []object
			}
			err = json.NewDecoder(resp.Body).Decode(&list)
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "the kind", list.Kind, row.kind)
			testkit.WantNumber(t, "pods", len(list.Items), 1)
			_, hasSpec := list.Items[0]["spec"]
			testkit.WantEqual(t, "the pod has a spec", hasSpec, row.hasSpec)
		})
	}
}

func sameInEveryForm(w *world) {
	w.addPod("a", "wire")
	w.addPod("b", "wire")
	var first []string
	for _, form := range []struct {
		name           string
		isProtobuf     bool
		isMetadataOnly bool
	}{
		{"metadata as protobuf", true, true},
		{"metadata as JSON", false, true},
		{"whole pods as protobuf", true, false},
		{"whole pods as JSON", false, false},
	} {
		w.Run(form.name, func(t *testing.T) {
			pods := w.under(t).podsIn(form.isProtobuf, form.isMetadataOnly)
			testkit.WantNumber(t, "pods", len(pods), 2)
			if first == nil {
				first = pods
			}
			testkit.WantEqual(t, "the pods, compared with the first form", pods, first)
		})
	}
}

// podsIn lists the pods with the label group=wire, in JSON or protobuf, whole or only their metadata. It returns a line
// for each.
func (w *world) podsIn(isProtobuf, isMetadataOnly bool) []string {
	w.Helper()
	media := wire.JSON
	if isProtobuf {
		media = wire.Protobuf
	}
	as := ""
	if isMetadataOnly {
		as = "PartialObjectMetadataList"
	}
	body, err := w.client.Stream(w.Context(), kube.Request{
		Method: "GET",
		Path:   w.pods(),
		Query:  url.Values{"labelSelector": {"group=wire"}},
		Accept: kube.Accept(isMetadataOnly, as, media),
	})
	if err != nil {
		w.Fatal(err)
	}
	defer body.Close()
	testkit.WantEqual(w, "the answer is protobuf", body.IsProtobuf, isProtobuf)
	pods, err := w.options.DecodePods(body, body.IsProtobuf, isMetadataOnly)
	if err != nil {
		w.Fatal(err)
	}
	return pods
}

func missingIs404(w *world) {
	_, err := w.try("GET", w.pods()+"/none", nil)
	w.wantStatus("a missing pod", err, 404, "NotFound")
	for _, path := range []string{"/apis/podcount.test/v1/nothings", "/apis/podcount.test/v1"} {
		_, err := w.try("GET", path, nil)
		w.wantStatus(path, err, 404, "")
	}
}

func conflictIs409(w *world) {
	a := w.addPod("a", "conflict")
	_, err := w.try("POST", w.pods(), w.pod("a", "group", "conflict"))
	w.wantStatus("a second creation", err, 409, "AlreadyExists")

	patch := labels("x", "y")
	fakekube.MetaOf(patch)["resourceVersion"] = "1"
	_, err = w.try("PATCH", a, patch)
	w.wantStatus("a patch of an old version", err, 409, "Conflict")
}

func otherUIDIs422(w *world) {
	node := w.addNode("uid", "uid")
	patch := labels(countLabel, "1")
	fakekube.MetaOf(patch)["uid"] = "11111111-0000-4000-8000-000000000000"
	_, err := w.try("PATCH", node, patch)
	w.wantStatus("a patch with another uid", err, 422, "Invalid")
	if !kube.StatusOf(err).HasCause("metadata.uid") {
		w.Errorf("%v does not name metadata.uid as the cause", err)
	}
}

func (w *world) lease(name string) (path string) {
	return "/apis/coordination.k8s.io/v1/namespaces/" + w.namespace + "/leases/" + name
}

func leaseVersions(w *world) {
	path := w.lease("ours")
	lease := func(version, renewTime string) object {
		meta := object{"name": "ours", "namespace": w.namespace}
		if version != "" {
			meta["resourceVersion"] = version
		}
		return object{
			"apiVersion": "coordination.k8s.io/v1",
			"kind":       "Lease",
			"metadata":   meta,
			"spec":       object{"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": renewTime},
		}
	}
	_, err := w.try("GET", path, nil)
	w.wantStatus("a lease that does not exist", err, 404, "NotFound")
	_, err = w.try("PUT", path, lease("", "2026-01-02T03:04:05.123Z"))
	w.wantStatus("a time with three digits of a second", err, 400, "BadRequest")

	w.deleteAtEnd(path)
	created := w.send("PUT", path, lease("", "2026-01-02T03:04:05.000000Z"))
	version := fakekube.TextIn(fakekube.MetaOf(created), "resourceVersion")
	_, err = w.try("PUT", path, lease("", "2026-01-02T03:04:06.000000Z"))
	w.wantStatus("an update without a version", err, 422, "Invalid")
	w.send("PUT", path, lease(version, "2026-01-02T03:04:06.000000Z"))
	_, err = w.try("PUT", path, lease(version, "2026-01-02T03:04:07.000000Z"))
	w.wantStatus("an update of an old version", err, 409, "Conflict")
}

func discovery(w *world) {
	for _, row := range []struct{ path, resource string }{
		{"/api/v1", "nodes"},
		{"/apis/coordination.k8s.io/v1", "leases"},
	} {
		list := w.send("GET", row.path, nil)
		testkit.WantEqual(w, "the kind of "+row.path, list["kind"], "APIResourceList")
		resources, _ := list["resources"].([]any)
		isNamed := slices.ContainsFunc(resources, func(r any) bool {
			return fakekube.TextIn(r.(object), "name") == row.resource
		})
		if !isNamed {
			w.Errorf("%s does not name %s", row.path, row.resource)
		}
	}
}

func sameSelectors(w *world) {
	var selectors struct {
		LabelSelectorsAccepted, LabelSelectorsRefused []string
		FieldSelectorsAccepted, FieldSelectorsRefused []string
	}
	err := json.Unmarshal([]byte(readFile(w, "testdata/selectors.json")), &selectors)
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
