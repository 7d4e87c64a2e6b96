package behaviours

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func refusedByPolicy(w *world) {
	node := w.addNode("policy", "policy")
	const group = "/apis/admissionregistration.k8s.io/v1/"
	_, err := w.try("GET", group+"validatingadmissionpolicies?limit=1", nil)
	if kube.StatusOf(err).Code == 404 {
		w.cannotShow("ValidatingAdmissionPolicy needs Kubernetes 1.30")
	}
	policy := named(w.namespace)
	policy["spec"] = object{
		"failurePolicy": "Fail",
		"matchConstraints": object{"resourceRules": []any{object{
			"apiGroups":   []any{""},
			"apiVersions": []any{"v1"},
			"operations":  []any{"CREATE", "UPDATE"},
			"resources":   []any{"nodes"},
		}}},
		"matchConditions": []any{object{
			"name":       "ours",
			"expression": "object.metadata.name == '" + path.Base(node) + "'",
		}},
		"validations": []any{object{
			"expression": "!('" + countLabel + "' in object.metadata.labels)",
			"message":    "no counts today",
		}},
	}
	policyPath := w.create(group+"validatingadmissionpolicies", policy)
	binding := named(w.namespace)
	binding["spec"] = object{"policyName": w.namespace, "validationActions": []any{"Deny"}}
	bindingPath := w.create(group+"validatingadmissionpolicybindings", binding)
	w.await("the policy is in force", func() bool {
		_, err := w.try("PATCH", node, labels(countLabel, "13"))
		return err != nil
	})

	log := w.start(w.admin(), "policy")
	w.awaitLog(log, "422 Invalid", "no counts today")
	w.delete(bindingPath)
	w.delete(policyPath)
	w.awaitLabel(node, "0")
}

// lateWrite holds back podcount's watch of nodes, so that podcount writes to a node that has been deleted or recreated.
func lateWrite(w *world) {
	w.runAlongside("late")
	node := w.addNode("late", "late")
	w.addNode("late-other", "late") // Without any node, podcount would warn before it sees the recreated one.
	hold := newNodeWatchHold()
	p := w.startProxy("late", hold.onAnswer)
	w.Cleanup(hold.release) // runs before the proxy's cleanup, which waits for the held watch
	log := w.start(p.access, "late")
	w.awaitLabel(node, "0")

	hold.isHeld.Store(true)
	w.delete(node)
	w.addPod("late-a", "late")
	w.await("a patch of the deleted node", func() bool { return hold.notFound.Load() > 0 })
	w.addNode("late", "late")
	w.addPod("late-b", "late")
	w.await("a patch of the recreated node", func() bool { return hold.invalid.Load() > 0 })

	hold.release()
	w.awaitLabel(node, "2")
	w.awaitStill(p, node)
	w.wantNoWarnings(log)
}

// nodeWatchHold holds back the events of the watches of nodes that pass through a proxy. It also counts the refused
// patches.
type nodeWatchHold struct {
	isHeld   atomic.Bool
	released chan struct{}
	release  func() // closes released

	notFound atomic.Int32 // patches that were answered with 404
	invalid  atomic.Int32 // patches that were answered with 422
}

// newNodeWatchHold returns a hold that lets everything pass until isHeld is set.
func newNodeWatchHold() *nodeWatchHold {
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	return &nodeWatchHold{released: released, release: release}
}

// onAnswer looks at an answer that passes through the proxy. It is for startProxy.
func (h *nodeWatchHold) onAnswer(r *http.Response) {
	isPatch := r.Request.Method == "PATCH"
	isNodeWatch := strings.HasSuffix(r.Request.URL.Path, "/nodes") && r.Request.URL.Query().Has("watch")
	switch {
	case isPatch && r.StatusCode == 404:
		h.notFound.Add(1)
	case isPatch && r.StatusCode == 422:
		h.invalid.Add(1)
	case isNodeWatch:
		r.Body = &heldBody{r.Body, h}
	}
}

// heldBody is the body of a watch. While the watch is held, Read returns nothing.
type heldBody struct {
	io.ReadCloser
	hold *nodeWatchHold
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.hold.isHeld.Load() {
		<-b.hold.released
	}
	return n, err
}

func slowWebhook(w *world) {
	if w.options.Fake != nil {
		w.Skip("the fake calls no webhooks")
	}
	w.runAlongside("webhook")
	slow := w.addNode("slow", "webhook")
	quick := w.addNode("quick", "webhook")
	w.send("PATCH", slow, labels("podcount.test/slow", "yes"))
	calls := w.addSlowWebhook()
	w.await("the webhook is in force", func() bool {
		annotations := object{"podcount.test/at": time.Now().String()}
		_, err := w.try("PATCH", slow, object{"metadata": object{"annotations": annotations}})
		if err != nil {
			w.Log(err)
			w.cannotShow("the cluster cannot reach a webhook on this machine")
		}
		return calls.Load() > 0
	})
	before := calls.Load()

	started := time.Now()
	w.start(w.admin(), "webhook")
	w.awaitLabel(quick, "0")
	w.addPod("webhook-a", "webhook")
	w.awaitLabel(quick, "1")
	if took := time.Since(started); took > 10*time.Second {
		w.Errorf("another node waited for %v, want at most 10 s", took)
	}
	w.awaitLabel(slow, "1")
	// The number of pods has changed while the first write was in flight, so there is a second one.
	testkit.WantNumber(w, "writes to the slow node", int(calls.Load()-before), 2)
}

// addSlowWebhook registers a webhook that allows each change of a node with the label podcount.test/slow, but takes
// 20 s for a change by podcount. It counts its calls.
func (w *world) addSlowWebhook() (calls *atomic.Int32) {
	calls = new(atomic.Int32)
	url, ca := w.serveTLS(func(rw http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		allowSlowly(rw, r)
	})
	configuration := named(w.namespace)
	configuration["webhooks"] = []any{object{
		"name":                    "slow.podcount.test",
		"clientConfig":            object{"url": url, "caBundle": ca},
		"sideEffects":             "None",
		"admissionReviewVersions": []any{"v1"},
		"rules": []any{object{
			"apiGroups":   []any{""},
			"apiVersions": []any{"v1"},
			"operations":  []any{"UPDATE"},
			"resources":   []any{"nodes"},
		}},
		"objectSelector": object{
			"matchLabels": object{runLabel: w.namespace, "podcount.test/slow": "yes"},
		},
		"timeoutSeconds": 30,
		"failurePolicy":  "Fail",
	}}
	w.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", configuration)
	return calls
}

// allowSlowly answers an AdmissionReview: it allows the change, but a change by podcount only after 20 s.
func allowSlowly(rw http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID     string
			Options struct{ FieldManager string }
		}
	}
	json.NewDecoder(r.Body).Decode(&review)
	if review.Request.Options.FieldManager == "podcount" {
		retry.Sleep(r.Context(), 20*time.Second)
	}
	rw.Header().Set("Content-Type", wire.JSON)
	json.NewEncoder(rw).Encode(object{
		"apiVersion": "admission.k8s.io/v1",
		"kind":       "AdmissionReview",
		"response":   object{"uid": review.Request.UID, "allowed": true},
	})
}

// serveTLS serves a handler until the test ends. It returns the URL, and the CA of its certificate in PEM.
func (w *world) serveTLS(handler http.HandlerFunc) (url string, ca []byte) {
	w.Helper()
	authority := fakekube.NewAuthority("a webhook's CA")
	certificate, key := authority.Issue("webhook", nil)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		w.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	w.Cleanup(server.Close)
	return server.URL, authority.PEM()
}
