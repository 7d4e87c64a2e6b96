package comparison

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	trackerfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"podcount/lab/fakekube"
)

// informerLearns runs an informer of pods, in a bubble, and reports whether it learns of a pod that is created after an
// hour.
func informerLearns(t *testing.T, clientset kubernetes.Interface, add func()) bool {
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(clientset, 0)
	informer := factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	<-time.After(time.Hour)
	add()
	<-time.After(10 * time.Minute)
	synctest.Wait()
	found := informer.HasSynced() && len(informer.GetStore().List()) == 1
	cancel()
	factory.Shutdown()
	return found
}

func TestInformersRunInVirtualTime(t *testing.T) {
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		clientset := trackerfake.NewClientset()
		add := func() { clientset.Tracker().Add(inDefault(podNamed("a"))) }
		if !informerLearns(t, clientset, add) {
			t.Error("over the tracker, it has not learned of the pod")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		fake := fakekube.New()
		network := fakekube.NewNetwork(&http.Server{Handler: fake})
		defer network.Close()
		transport := &http.Transport{DialContext: network.Dial}
		defer transport.CloseIdleConnections()
		clientset := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://fake", Transport: transport})
		add := func() {
			network.Kill()
			fake.AddPod("default", "a", "")
			fake.Compact()
			time.AfterFunc(time.Minute, network.Restore)
		}
		if !informerLearns(t, clientset, add) {
			t.Error("over fakekube, after an outage, it has not learned of the pod")
		}
	})
	t.Logf("more than two hours took %v", time.Since(begin))
}
