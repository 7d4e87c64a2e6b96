package comparison

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// podNamed is a pod as a test makes one.
func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "nginx"}},
			NodeName:   "n1",
		},
	}
}

// behaviour is something that a real API server does. has reports whether a contender does it, and is given a new one.
type behaviour struct {
	name string
	has  func(ctx context.Context, api cluster) bool
}

func behaviours() []behaviour {
	return []behaviour{
		{"each write raises the resourceVersion", func(ctx context.Context, api cluster) bool {
			first, _ := api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			second, err := label(ctx, api, "a", "x")
			return err == nil && first.ResourceVersion != "" && first.ResourceVersion != second.ResourceVersion
		}},
		{"a list has a resourceVersion", func(ctx context.Context, api cluster) bool {
			list, err := api.List(ctx, metav1.ListOptions{})
			return err == nil && list.ResourceVersion != "" && list.ResourceVersion != "0"
		}},
		{"a watch goes on from a list's version", func(ctx context.Context, api cluster) bool {
			list, _ := api.List(ctx, metav1.ListOptions{})
			api.Create(ctx, podNamed("between"), metav1.CreateOptions{})
			return strings.Join(watched(ctx, api, metav1.ListOptions{ResourceVersion: list.ResourceVersion}, nil), " ") ==
				"ADDED between"
		}},
		{"a test can make a version too old, so that a watch gets a 410", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			api.forget()
			events, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: "1"})
			if err != nil {
				return apierrors.IsResourceExpired(err)
			}
			defer events.Stop()
			event := next(events)
			return event.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(event.Object))
		}},
		{"a watch with sendInitialEvents ends them by a bookmark", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			opts := metav1.ListOptions{
				SendInitialEvents:    ptr.To(true),
				AllowWatchBookmarks:  true,
				ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			}
			got := watched(ctx, api, opts, nil)
			return len(got) == 2 && strings.HasPrefix(got[1], "BOOKMARK")
		}},
		{"a watch with a label selector sees an object leave it as DELETED", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			list, _ := api.List(ctx, metav1.ListOptions{})
			opts := metav1.ListOptions{LabelSelector: "app=web", ResourceVersion: list.ResourceVersion}
			change := func() { patch(ctx, api, "a", `{"metadata":{"labels":{"app":null}}}`) }
			return strings.Join(watched(ctx, api, opts, change), " ") == "DELETED a"
		}},
		{"a list honours a field selector", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			api.Create(ctx, podNamed("b"), metav1.CreateOptions{})
			list, err := api.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=b"})
			return err == nil && len(list.Items) == 1
		}},
		{"a list comes in pages", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			api.Create(ctx, podNamed("b"), metav1.CreateOptions{})
			list, err := api.List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil && len(list.Items) == 1 && list.Continue != ""
		}},
		{"a list at an exact version shows what was", func(ctx context.Context, api cluster) bool {
			before, _ := api.List(ctx, metav1.ListOptions{})
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			list, err := api.List(ctx, metav1.ListOptions{
				ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
			})
			return err == nil && len(list.Items) == 0
		}},
		{"an update of an old version is a conflict", func(ctx context.Context, api cluster) bool {
			old, _ := api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			label(ctx, api, "a", "x")
			old.Labels["mine"] = "yes"
			_, err := api.Update(ctx, old, metav1.UpdateOptions{})
			return apierrors.IsConflict(err)
		}},
		{"an invalid name is refused", func(ctx context.Context, api cluster) bool {
			_, err := api.Create(ctx, podNamed("Not_A_Name"), metav1.CreateOptions{})
			return apierrors.IsInvalid(err)
		}},
		{"an invalid label is refused", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			_, err := label(ctx, api, "a", "not a value")
			return apierrors.IsInvalid(err)
		}},
		{"a pod without containers is refused", func(ctx context.Context, api cluster) bool {
			pod := podNamed("a")
			pod.Spec.Containers = nil
			_, err := api.Create(ctx, pod, metav1.CreateOptions{})
			return apierrors.IsInvalid(err)
		}},
		{"defaults are filled in", func(ctx context.Context, api cluster) bool {
			pod, err := api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			return err == nil && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways
		}},
		{"generateName makes a name", func(ctx context.Context, api cluster) bool {
			pod := podNamed("")
			pod.GenerateName = "web-"
			made, err := api.Create(ctx, pod, metav1.CreateOptions{})
			return err == nil && len(made.Name) > len("web-")
		}},
		{"uid and creationTimestamp are set", func(ctx context.Context, api cluster) bool {
			pod, err := api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			return err == nil && pod.UID != "" && !pod.CreationTimestamp.IsZero()
		}},
		{"a new pod has generation 1", func(ctx context.Context, api cluster) bool {
			pod, err := api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			return err == nil && pod.Generation == 1
		}},
		{"the status changes by its subresource alone", func(ctx context.Context, api cluster) bool {
			pod, _ := api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			pod.Status.Message = "written to the object"
			pod, err := api.Update(ctx, pod, metav1.UpdateOptions{})
			return err == nil && pod.Status.Message == ""
		}},
		{"a finalizer keeps a deleted object", func(ctx context.Context, api cluster) bool {
			pod := podNamed("a")
			pod.Finalizers = []string{"example.com/mine"}
			api.Create(ctx, pod, metav1.CreateOptions{})
			api.Delete(ctx, "a", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			left, err := api.Get(ctx, "a", metav1.GetOptions{})
			return err == nil && left.DeletionTimestamp != nil
		}},
		{"a delete with another uid is a conflict", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			other := types.UID("11111111-2222-3333-4444-555555555555")
			err := api.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
			return apierrors.IsConflict(err)
		}},
		{"a dry run stores nothing", func(ctx context.Context, api cluster) bool {
			_, err := api.Create(ctx, podNamed("a"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			_, getErr := api.Get(ctx, "a", metav1.GetOptions{})
			return err == nil && apierrors.IsNotFound(getErr)
		}},
		{"a strategic merge patch merges lists by key", func(ctx context.Context, api cluster) bool {
			two := podNamed("a")
			two.Spec.Containers = append(two.Spec.Containers, corev1.Container{Name: "d", Image: "nginx"})
			api.Create(ctx, two, metav1.CreateOptions{})
			pod, err := api.Patch(ctx, "a", types.StrategicMergePatchType,
				[]byte(`{"spec":{"containers":[{"name":"d","image":"other"}]}}`), metav1.PatchOptions{})
			return err == nil && len(pod.Spec.Containers) == 2
		}},
		{"a JSON patch whose test fails changes nothing", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			_, err := api.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/name","value":"b"},
				{"op":"add","path":"/metadata/labels/x","value":"y"}]`), metav1.PatchOptions{})
			pod, _ := api.Get(ctx, "a", metav1.GetOptions{})
			return apierrors.IsInvalid(err) && pod.Labels["x"] == ""
		}},
		{"server-side apply", func(ctx context.Context, api cluster) bool {
			applied := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},` +
				`"spec":{"containers":[{"name":"c","image":"nginx"}]}}`
			pod, err := api.Patch(ctx, "a", types.ApplyPatchType, []byte(applied),
				metav1.PatchOptions{FieldManager: "me", Force: ptr.To(true)})
			return err == nil && pod.Name == "a"
		}},
		{"an immutable field cannot change", func(ctx context.Context, api cluster) bool {
			api.Create(ctx, podNamed("a"), metav1.CreateOptions{})
			_, err := patch(ctx, api, "a", `{"spec":{"nodeName":"n2"}}`)
			return apierrors.IsInvalid(err)
		}},
		{"a user without a role is refused (RBAC)", func(ctx context.Context, api cluster) bool {
			if api.stranger == nil {
				return false
			}
			_, err := api.stranger.List(ctx, metav1.ListOptions{})
			return apierrors.IsForbidden(err)
		}},
		{"what an owner owned is collected", func(ctx context.Context, api cluster) bool {
			owner, _ := api.Create(ctx, podNamed("owner"), metav1.CreateOptions{})
			owned := podNamed("owned")
			owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "owner", UID: owner.UID}}
			if _, err := api.Create(ctx, owned, metav1.CreateOptions{}); err != nil {
				return false
			}
			api.Delete(ctx, "owner", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			<-time.After(time.Second)
			_, err := api.Get(ctx, "owned", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}},
	}
}

func patch(ctx context.Context, api pods, name, body string) (*corev1.Pod, error) {
	return api.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
}

func label(ctx context.Context, api pods, name, value string) (*corev1.Pod, error) {
	return patch(ctx, api, name, fmt.Sprintf(`{"metadata":{"labels":{"l":%q}}}`, value))
}

// patience is how long a watch may take to tell what it has to tell.
const patience = 500 * time.Millisecond

// next is the next event of a watch, without a type where none comes.
func next(events watch.Interface) watch.Event {
	select {
	case event := <-events.ResultChan():
		return event
	case <-time.After(patience):
		return watch.Event{}
	}
}

// watched are the events of a watch and the names in them, in which change happens once it runs.
func watched(ctx context.Context, api pods, opts metav1.ListOptions, change func()) (all []string) {
	events, err := api.Watch(ctx, opts)
	if err != nil {
		return []string{err.Error()}
	}
	defer events.Stop()
	if change != nil {
		change()
	}
	for {
		event := next(events)
		if event.Type == "" {
			return all
		}
		pod, _ := event.Object.(*corev1.Pod)
		all = append(all, fmt.Sprintf("%s %s", event.Type, pod.GetName()))
	}
}

// TestBehaviours prints which behaviours each contender has.
func TestBehaviours(t *testing.T) {
	text := "| |"
	rule := "|---|"
	rows := make([]string, len(behaviours()))
	for _, c := range contenders() {
		text += " " + c.name + " |"
		rule += "---|"
		for i, b := range behaviours() {
			rows[i] += " " + verdict(t, c, b) + " |"
		}
	}
	text += "\n" + rule + "\n"
	for i, b := range behaviours() {
		text += "| " + b.name + " |" + rows[i] + "\n"
	}
	fmt.Print("\n", text, "\n")
}

// verdict is yes or no, also where a contender panics.
func verdict(t *testing.T, c contender, b behaviour) (answer string) {
	defer func() {
		if problem := recover(); problem != nil {
			t.Logf("%s: %s: %v", c.name, b.name, problem)
			answer = "no"
		}
	}()
	start := c.start
	if c.share != nil {
		start = c.share
	}
	api := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if b.has(ctx, api) {
		return "yes"
	}
	return "no"
}
