// Command controller-runtime is a peer of the trial. It has the shape of the library's examples, with a manager and a
// builder: https://github.com/kubernetes-sigs/controller-runtime/blob/v0.23.3/pkg/builder/example_test.go, and for pods,
// which belong to no node's owner, Example_customHandler in
// https://github.com/kubernetes-sigs/controller-runtime/blob/v0.23.3/example_test.go
package main

import (
	"context"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const controlPlane = "node-role.kubernetes.io/control-plane"

func main() {
	ctrl.SetLogger(zap.New())
	log := ctrl.Log.WithName("peer")
	// The default port of the metrics is fixed, but several trials run at once.
	options := ctrl.Options{Metrics: server.Options{BindAddress: "0"}}
	if namespace, name, ok := strings.Cut(os.Getenv("TRIAL_LEASE"), "/"); ok {
		options.LeaderElection = true
		options.LeaderElectionNamespace, options.LeaderElectionID = namespace, name
		options.LeaderElectionReleaseOnCancel = true
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	if err != nil {
		log.Error(err, "could not create manager")
		os.Exit(1)
	}
	r := &reconciler{Client: manager.GetClient(), label: os.Getenv("TRIAL_LABEL")}
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.Node{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.nodesOf)).
		Complete(r)
	if err != nil {
		log.Error(err, "could not create controller")
		os.Exit(1)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Error(err, "could not start manager")
		os.Exit(1)
	}
}

type reconciler struct {
	client.Client
	label string
}

// nodesOf returns the nodes whose label a pod changes.
func (r *reconciler) nodesOf(ctx context.Context, _ client.Object) (requests []ctrl.Request) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.HasLabels{controlPlane}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "could not list nodes")
		return nil
	}
	for _, node := range nodes.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&node)})
	}
	return requests
}

// Reconcile sets the label of a node.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var node corev1.Node
	if err := r.Get(ctx, request.NamespacedName, &node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var pods corev1.PodList
	if err := r.List(ctx, &pods); err != nil {
		return ctrl.Result{}, err
	}
	want := strconv.Itoa(len(pods.Items))
	if _, isControlPlane := node.Labels[controlPlane]; !isControlPlane || node.Labels[r.label] == want {
		return ctrl.Result{}, nil
	}
	before := client.MergeFrom(node.DeepCopy())
	node.Labels[r.label] = want
	return ctrl.Result{}, r.Patch(ctx, &node, before)
}
