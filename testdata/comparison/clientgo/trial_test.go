package clientgo_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"podcount/lab/trial"
)

// countPods is a controller on client-go: informers of pods and nodes, a workqueue of nodes, and two workers.
func countPods(ctx context.Context, c trial.Cluster) error {
	client := kubernetes.NewForConfigOrDie(&rest.Config{Host: c.URL, Transport: c.Transport})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods()
	nodes := factory.Core().V1().Nodes()
	controlPlane := labels.SelectorFromSet(labels.Set{"node-role.kubernetes.io/control-plane": ""})

	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	addNodes := func() {
		all, _ := nodes.Lister().List(controlPlane)
		for _, node := range all {
			queue.Add(node.Name)
		}
	}
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), nodes.Informer()} {
		informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { addNodes() },
			UpdateFunc: func(any, any) { addNodes() },
			DeleteFunc: func(any) { addNodes() },
		})
	}
	correct := func(name string) error {
		node, err := nodes.Lister().Get(name)
		if err != nil {
			return nil // it is gone
		}
		all, _ := pods.Lister().List(labels.Everything())
		want := fmt.Sprint(len(all))
		if node.Labels[c.Label] == want {
			return nil
		}
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, c.Label, want)
		_, err = client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}

	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	addNodes()
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for name, isShutDown := queue.Get(); !isShutDown; name, isShutDown = queue.Get() {
				if correct(name) != nil {
					queue.AddRateLimited(name)
				} else {
					queue.Forget(name)
				}
				queue.Done(name)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	factory.Shutdown()
	return nil
}

func TestClientGoTakesTheTrialInVirtualTime(t *testing.T) {
	// One of these handlers sleeps, and keeps the time of the last error from one bubble to the next, where time begins
	// again.
	utilruntime.ErrorHandlers = nil
	trial.Run(t, trial.Program{Run: countPods, KnownFailures: map[string]string{
		"watch unanswered": "client-go has no limit for the answer to a watch",
		"list unanswered":  "client-go has no limit for the answer to a list",
		"etcd restored":    "client-go does not notice that versions have gone back",
		"event lost":       "client-go never lists again without a reason",
	}})
}
