package comparison

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// countLabel is what each client writes to the playground's control plane: how many pods it knows of.
const countLabel = "example.com/pods"

// counter is a client's cache of all pods. count says how many it has, and false until it has synced.
type counter func(t *testing.T, ctx context.Context, config *rest.Config) (count func() (int, bool))

// TestClientsOfClientGoCountThePlaygroundsPods has the clients that most controllers are made of sync with the
// playground (`make run`), and do podcount's job there.
func TestClientsOfClientGoCountThePlaygroundsPods(t *testing.T) {
	config := startPlayground(t)
	for _, c := range []struct {
		name  string
		start counter
	}{
		{"a shared informer, in JSON", countByInformer},
		{"a shared informer, in protobuf", countInProtobuf},
		{"a metadata informer", countByMetadata},
		{"controller-runtime", countByManager},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			clientset := kubernetes.NewForConfigOrDie(config)
			writeLabel(t, ctx, clientset, "null")
			count := c.start(t, ctx, rest.CopyConfig(config))
			late := time.After(30 * time.Second)
			ticks := time.NewTicker(100 * time.Millisecond)
			defer ticks.Stop()
			for {
				select {
				case <-late:
					t.Fatal("the label is never right")
				case <-ticks.C:
				}
				n, hasSynced := count()
				if !hasSynced {
					continue
				}
				writeLabel(t, ctx, clientset, strconv.Quote(strconv.Itoa(n)))
				if isRight(t, ctx, clientset) {
					return
				}
			}
		})
	}
}

// writeLabel gives the control plane its label, a text in JSON.
func writeLabel(t *testing.T, ctx context.Context, clientset *kubernetes.Clientset, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, countLabel, value)
	_, err := clientset.CoreV1().Nodes().Patch(ctx, "control-plane", types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// isRight reports whether the label says how many pods there are.
func isRight(t *testing.T, ctx context.Context, clientset *kubernetes.Clientset) bool {
	t.Helper()
	pods, err := clientset.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node, err := clientset.CoreV1().Nodes().Get(ctx, "control-plane", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return len(pods.Items) > 0 && node.Labels[countLabel] == strconv.Itoa(len(pods.Items))
}

func countByInformer(_ *testing.T, ctx context.Context, config *rest.Config) func() (int, bool) {
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	return countIn(ctx, factory.Core().V1().Pods().Informer())
}

func countInProtobuf(_ *testing.T, ctx context.Context, config *rest.Config) func() (int, bool) {
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(config), 0)
	return countIn(ctx, factory.Core().V1().Pods().Informer())
}

func countByMetadata(_ *testing.T, ctx context.Context, config *rest.Config) func() (int, bool) {
	factory := metadatainformer.NewSharedInformerFactory(metadata.NewForConfigOrDie(config), 0)
	return countIn(ctx, factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer())
}

// countIn runs an informer, and counts what it has.
func countIn(ctx context.Context, informer cache.SharedIndexInformer) func() (int, bool) {
	go informer.Run(ctx.Done())
	return func() (int, bool) { return len(informer.GetStore().ListKeys()), informer.HasSynced() }
}

func countByManager(t *testing.T, ctx context.Context, config *rest.Config) func() (int, bool) {
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := manager.GetCache().GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	go manager.Start(ctx)
	return func() (int, bool) {
		var pods corev1.PodList
		if !informer.HasSynced() || manager.GetClient().List(ctx, &pods) != nil {
			return 0, false
		}
		return len(pods.Items), true
	}
}

// startPlayground builds the playground and runs it until the test ends, without podcount.
func startPlayground(t *testing.T) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "playground")
	build := exec.Command("go", "build", "-o", program, "./lab/playground")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	idle := filepath.Join(dir, "idle")
	if err := os.WriteFile(idle, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	playground := exec.Command(program, idle, dir)
	output, err := playground.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := playground.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		playground.Process.Signal(os.Interrupt)
		playground.Wait()
	})
	// It writes the kubeconfig before it says anything.
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, output)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "playground.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	return config
}
