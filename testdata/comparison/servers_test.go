package comparison

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	trackerfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"podcount/lab/fakekube"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimefake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// pods are the pods of the namespace default, as client-go's clientset has them.
type pods interface {
	Create(context.Context, *corev1.Pod, metav1.CreateOptions) (*corev1.Pod, error)
	Update(context.Context, *corev1.Pod, metav1.UpdateOptions) (*corev1.Pod, error)
	Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, opts metav1.PatchOptions,
		subresources ...string) (*corev1.Pod, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// cluster is what a test of a controller begins with.
type cluster struct {
	pods
	forget func() // has it forget its history, as etcd does by itself

	// stranger is the same pods for a user whom no role names; nil where there are no users.
	stranger pods
}

// contender is one of the things that a controller can be tested against.
type contender struct {
	name string

	// start makes a new one, without pods, and stops it when the test ends.
	start func(t testing.TB) cluster

	// share, if it is not nil, is for tests that need no new one, but a namespace of their own.
	share func(t testing.TB) cluster
}

func contenders() []contender {
	all := []contender{
		{name: "client-go tracker", start: startTracker},
		{name: "controller-runtime fake", start: startRuntimeFake},
		{name: "fakekube", start: startFakekube},
	}
	if os.Getenv("KUBEBUILDER_ASSETS") != "" {
		all = append(all, contender{name: "envtest", start: startEnvtest, share: shareEnvtest})
	}
	return all
}

func nothing() {}

func startTracker(testing.TB) cluster {
	return cluster{trackerfake.NewClientset().CoreV1().Pods("default"), nothing, nil}
}

func startRuntimeFake(testing.TB) cluster {
	return cluster{runtimePods{runtimefake.NewClientBuilder().Build()}, nothing, nil}
}

// startFakekube serves over TCP, as envtest does.
func startFakekube(t testing.TB) cluster {
	fake := fakekube.New()
	endpoint := fake.Listen("https")
	t.Cleanup(endpoint.Close)
	config := &rest.Config{Host: endpoint.URL}
	config.CAData = endpoint.CA
	return served(t, config, "default", fake.Compact)
}

// served are the pods of a namespace of a server.
func served(t testing.TB, config *rest.Config, namespace string, forget func()) cluster {
	stranger := rest.CopyConfig(config)
	stranger.Impersonate.UserName = "stranger"
	return cluster{
		pods:     clientOf(t, config).CoreV1().Pods(namespace),
		forget:   forget,
		stranger: clientOf(t, stranger).CoreV1().Pods(namespace),
	}
}

// clientOf is a client that does not hold itself back.
func clientOf(t testing.TB, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	config.QPS = -1
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return clientset
}

func startEnvtest(t testing.TB) cluster {
	return served(t, environment(t), "default", nothing)
}

var (
	shared     *rest.Config // of the environment that all tests share; nil: there is none yet
	namespaces int          // made there
)

// shareEnvtest makes a namespace in an environment that goes on until TestBehaviours ends.
func shareEnvtest(t testing.TB) cluster {
	t.Helper()
	if shared == nil {
		shared = environment(t)
		t.Cleanup(func() { shared = nil })
	}
	namespaces++
	name := fmt.Sprintf("behaviour-%d", namespaces)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := clientOf(t, shared).CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return served(t, shared, name, nothing)
}

// environment starts an API server and etcd, without the ServiceAccounts that no controller makes there.
func environment(t testing.TB) *rest.Config {
	t.Helper()
	environment := &envtest.Environment{}
	environment.ControlPlane.GetAPIServer().Configure().Append("disable-admission-plugins", "ServiceAccount")
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { environment.Stop() })
	return config
}

// runtimePods are the pods of a controller-runtime client.
type runtimePods struct {
	client client.WithWatch
}

func inDefault(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = "default"
	return pod
}

func named(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func (p runtimePods) Create(ctx context.Context, pod *corev1.Pod, opts metav1.CreateOptions) (*corev1.Pod, error) {
	pod = inDefault(pod)
	err := p.client.Create(ctx, pod, &client.CreateOptions{DryRun: opts.DryRun, Raw: &opts})
	return pod, err
}

func (p runtimePods) Update(ctx context.Context, pod *corev1.Pod, opts metav1.UpdateOptions) (*corev1.Pod, error) {
	pod = inDefault(pod)
	err := p.client.Update(ctx, pod, &client.UpdateOptions{DryRun: opts.DryRun, Raw: &opts})
	return pod, err
}

func (p runtimePods) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte,
	opts metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	pod := named(name)
	raw := client.RawPatch(kind, patch)
	if len(subresources) > 0 {
		err := p.client.SubResource(subresources[0]).Patch(ctx, pod, raw)
		return pod, err
	}
	err := p.client.Patch(ctx, pod, raw, &client.PatchOptions{
		DryRun: opts.DryRun, Force: opts.Force, FieldManager: opts.FieldManager, Raw: &opts,
	})
	return pod, err
}

func (p runtimePods) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	return p.client.Delete(ctx, named(name), &client.DeleteOptions{
		Preconditions: opts.Preconditions, DryRun: opts.DryRun, Raw: &opts,
	})
}

func (p runtimePods) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := p.client.Get(ctx, types.NamespacedName{Namespace: "default", Name: name}, pod, &client.GetOptions{Raw: &opts})
	return pod, err
}

func runtimeListOptions(opts metav1.ListOptions) *client.ListOptions {
	converted := &client.ListOptions{Namespace: "default", Limit: opts.Limit, Continue: opts.Continue, Raw: &opts}
	if opts.LabelSelector != "" {
		converted.LabelSelector, _ = labels.Parse(opts.LabelSelector)
	}
	if opts.FieldSelector != "" {
		converted.FieldSelector, _ = fields.ParseSelector(opts.FieldSelector)
	}
	return converted
}

func (p runtimePods) List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	err := p.client.List(ctx, list, runtimeListOptions(opts))
	return list, err
}

func (p runtimePods) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return p.client.Watch(ctx, &corev1.PodList{}, runtimeListOptions(opts))
}
