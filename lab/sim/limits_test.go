package sim

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// A server would refuse an object beyond its limits, so no program could ever meet it.
func TestObjectsAtLimitsAreAccepted(t *testing.T) {
	s := &sim{fake: fakekube.New(), dice: rand.New(rand.NewPCG(1, 0))}
	s.ControlPlaneLabel = "control-plane"
	fixture.InstallCRD(s.fake, &fixture.CRD{HasStatus: true})
	s.fake.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": longestLabel}})
	for _, atLimit := range s.objectsAtLimits() {
		t.Run(atLimit.name, func(t *testing.T) {
			o := s.ordinary(atLimit.resource, atLimit.key, "n0")
			atLimit.change(o)
			path := "/api/v1/nodes"
			switch atLimit.resource {
			case "pods":
				path = "/api/v1/namespaces/" + atLimit.key.Namespace + "/pods"
			case "counts":
				o["apiVersion"] = "demo.mark8s.io/v1"
				o["kind"] = "Count"
				path = "/apis/demo.mark8s.io/v1/namespaces/default/counts"
			}
			body, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(string(body)))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			s.fake.ServeHTTP(answer, request)
			if answer.Code != http.StatusCreated {
				t.Errorf("%d %.500s", answer.Code, answer.Body)
			}
			if atLimit.isBig {
				testkit.WantBetween(t, "bytes of a big object", len(body), 100<<10, 1536<<10)
			}
		})
	}
	testkit.WantNumber(t, "the longest name", len(longestName), 253)
}

func TestBigPodsAreWithinTheLimitOfEtcd(t *testing.T) {
	for name, change := range map[string]func(fakekube.Object){
		"annotations": addHugeAnnotations, "managers": addManyManagers, "containers": addManyContainers,
	} {
		pod := fakekube.PodOn(fakekube.Object{"name": "big", "labels": fakekube.Object{}}, "")
		change(pod)
		body, _ := json.Marshal(pod)
		testkit.WantBetween(t, "bytes of a pod with many "+name, len(body), 100<<10, 1536<<10)
	}
}
