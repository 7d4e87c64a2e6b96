package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// controller has the shape of Kubernetes' sample-controller, with its resync and its limits:
// https://github.com/kubernetes/sample-controller/blob/master/controller.go
type controller struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	queue  workqueue.TypedRateLimitingInterface[string]
	label  string
}

func run(ctx context.Context, client kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(client, 30*time.Second)
	pods, nodes := factory.Core().V1().Pods(), factory.Core().V1().Nodes()
	limiter := workqueue.NewTypedMaxOfRateLimiter(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 1000*time.Second),
		&workqueue.TypedBucketRateLimiter[string]{Limiter: rate.NewLimiter(rate.Limit(50), 300)},
	)
	queue := workqueue.NewTypedRateLimitingQueue(limiter)
	defer queue.ShutDown()
	c := &controller{client, pods.Lister(), nodes.Lister(), queue, os.Getenv("TRIAL_LABEL")}
	nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(node any) { c.enqueue(node) },
		UpdateFunc: func(_, node any) { c.enqueue(node) },
	})
	pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.enqueueAll() },
		DeleteFunc: func(any) { c.enqueueAll() },
	})
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced, nodes.Informer().HasSynced) {
		klog.Error("failed to wait for caches to sync")
		return
	}
	for range 2 {
		go wait.UntilWithContext(ctx, c.work, time.Second)
	}
	<-ctx.Done()
}

func (c *controller) enqueue(node any) {
	name, err := cache.ObjectToName(node)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	c.queue.Add(name.Name)
}

// enqueueAll enqueues all nodes, because a pod changes the labels of several.
func (c *controller) enqueueAll() {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	for _, node := range nodes {
		c.enqueue(node)
	}
}

func (c *controller) work(ctx context.Context) {
	for c.workOnNext(ctx) {
	}
}

func (c *controller) workOnNext(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.sync(ctx, name); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "cannot set the label, trying again later", "node", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

func (c *controller) sync(ctx context.Context, name string) error {
	node, err := c.nodes.Get(name)
	if errors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	want := strconv.Itoa(len(pods))
	_, isControlPlane := node.Labels["node-role.kubernetes.io/control-plane"]
	if !isControlPlane || node.Labels[c.label] == want {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, c.label, want)
	_, err = c.client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
