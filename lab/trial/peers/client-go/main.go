// Command client-go is a peer of the trial, with informers and a workqueue of client-go.
package main

import (
	"context"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		klog.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		klog.Fatal(err)
	}
	if namespace, name, ok := strings.Cut(os.Getenv("TRIAL_LEASE"), "/"); ok {
		elect(ctx, client, namespace, name)
		return
	}
	run(ctx, client)
}

// elect runs the controller while it holds a Lease, in the shape of client-go's example:
// https://github.com/kubernetes/client-go/blob/v0.35.10/examples/leader-election/main.go
//
// The durations are those that the documentation of LeaderElectionConfig says core clients have:
// https://github.com/kubernetes/client-go/blob/v0.35.10/tools/leaderelection/leaderelection.go
func elect(ctx context.Context, client kubernetes.Interface, namespace, name string) {
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: uuid.New().String()},
		},
		ReleaseOnCancel: true,
		LeaseDuration:   15 * time.Second,
		RenewDeadline:   10 * time.Second,
		RetryPeriod:     2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { run(ctx, client) },
			OnStoppedLeading: func() {
				klog.Info("leader lost")
				os.Exit(0)
			},
		},
	})
}
