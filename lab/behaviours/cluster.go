package behaviours

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/yaml"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// cluster is what all behaviours share.
type cluster struct {
	options Options

	config *kubeconfig.Config
	client *kube.Client // of a user who may do everything
	ca     []byte       // of the server; nil if the kubeconfig has none

	namespace   string          // created for this run; the names of all our nodes begin with it
	interrupted context.Context // ends when the user interrupts the test
}

// openCluster connects to the cluster and creates our namespace there. The namespace and our events are removed when
// the test and all its subtests have ended.
func openCluster(t *testing.T, o Options) *cluster {
	config, err := kubeconfig.Load(t.Context(), kubeconfig.Options{
		Kubeconfig: o.Kubeconfig,
		Context:    o.Context,
		Getenv:     os.Getenv,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		options:   o,
		config:    config,
		client:    newClient(config),
		ca:        caOf(t, o.Kubeconfig, o.Context),
		namespace: fmt.Sprintf("podcount-e2e-%05x", rand.IntN(1<<20)),
	}
	ctx, stop := context.WithCancel(context.Background())
	if o.Fake == nil {
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	}
	c.interrupted = ctx
	t.Logf("%s, in the namespace %s", config.Server, c.namespace)

	t.Cleanup(stop)
	t.Cleanup(c.client.Close)
	w := newWorld(t, c)
	t.Cleanup(w.deleteEvents)
	w.create("/api/v1/namespaces", named(c.namespace))
	return c
}

func newClient(config *kubeconfig.Config) *kube.Client {
	return kube.NewClient(config, kube.Options{FieldManager: "podcount"})
}

// deleteEvents deletes the events in our namespace, and those on our nodes in the namespace default. It may run only
// after all behaviours have ended, because parallel ones still look at their events.
func (w *world) deleteEvents() {
	for _, namespace := range []string{"default", w.namespace} {
		for _, event := range w.events(context.Background(), namespace) {
			isOurs := namespace == w.namespace || strings.HasPrefix(involved(event), w.namespace)
			if !isOurs {
				continue
			}
			path := eventsOf(namespace) + "/" + fakekube.TextIn(fakekube.MetaOf(event), "name")
			w.client.Send(context.Background(), kube.Request{Method: "DELETE", API: path}, nil)
		}
	}
}

// deleteCreated deletes what w has created, the newest first.
func (w *world) deleteCreated() {
	for _, path := range slices.Backward(*w.created) {
		options := object{"gracePeriodSeconds": 0}
		err := w.client.Send(context.Background(), kube.Request{Method: "DELETE", API: path, Body: options}, nil)
		if err != nil && kube.StatusOf(err).Code != 404 {
			w.Errorf("%s was not deleted: %v", path, err)
		}
	}
}

// caOf returns the CA that a kubeconfig has for the cluster of a context, or nil if it has none. If contextName is "",
// it uses the current context.
func caOf(t *testing.T, file, contextName string) []byte {
	t.Helper()
	config, isObject := parseYAML(t, testkit.ReadFile(t, file)).(object)
	if !isObject {
		t.Fatalf("%s is not a kubeconfig", file)
	}
	if contextName == "" {
		contextName = fakekube.TextIn(config, "current-context")
	}
	context, _ := entryOf(config, "contexts", contextName)["context"].(object)
	cluster, _ := entryOf(config, "clusters", fakekube.TextIn(context, "cluster"))["cluster"].(object)
	if data := fakekube.TextIn(cluster, "certificate-authority-data"); data != "" {
		ca, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	name := fakekube.TextIn(cluster, "certificate-authority")
	if name == "" {
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(file), name)
	}
	return []byte(testkit.ReadFile(t, name))
}

// entryOf returns the entry with this name in one of a kubeconfig's lists, or nil if there is none.
func entryOf(config object, list, name string) object {
	entries, _ := config[list].([]any)
	for _, entry := range entries {
		if entry := entry.(object); entry["name"] == name {
			return entry
		}
	}
	return nil
}

func parseYAML(t testing.TB, text string) any {
	t.Helper()
	tree, err := yaml.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
