package comparison

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

// cost is what one run of a contender takes, by the name of what is measured.
type cost struct {
	name  string
	value float64
	unit  string
}

const podsToMeasure = 1000

// alive are the contenders that have been measured. None is freed while another's memory is looked at.
var alive []cluster

// measure starts a contender and uses it.
func measure(t testing.TB, c contender) []cost {
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	heapBefore := heap()
	begin := time.Now()
	api := c.start(t)
	_, err := api.List(ctx, metav1.ListOptions{})
	must(err)
	start := time.Since(begin)

	each := func(do func(name string)) time.Duration {
		begin := time.Now()
		for i := range podsToMeasure {
			do(fmt.Sprintf("web-%d", i))
		}
		return time.Since(begin) / podsToMeasure
	}
	create := each(func(name string) {
		_, err := api.Create(ctx, podNamed(name), metav1.CreateOptions{})
		must(err)
	})
	get := each(func(name string) {
		_, err := api.Get(ctx, name, metav1.GetOptions{})
		must(err)
	})
	label := []byte(`{"metadata":{"labels":{"seen":"yes"}}}`)
	patch := each(func(name string) {
		_, err := api.Patch(ctx, name, types.MergePatchType, label, metav1.PatchOptions{})
		must(err)
	})
	begin = time.Now()
	const lists = 10
	for range lists {
		list, err := api.List(ctx, metav1.ListOptions{})
		must(err)
		if len(list.Items) != podsToMeasure {
			t.Fatalf("%s lists %d pods", c.name, len(list.Items))
		}
	}
	list := time.Since(begin) / lists
	event := eventDelay(t, api)
	memory := heap() - heapBefore + c.memory()
	alive = append(alive, api)

	return []cost{
		{"from nothing to the first answer", ms(start), "ms"},
		{"create a pod", ms(create), "ms"},
		{"get a pod", ms(get), "ms"},
		{"patch a label", ms(patch), "ms"},
		{"list 1,000 pods", ms(list), "ms"},
		{"from a patch to its watch event", ms(event), "ms"},
		{"memory with 1,000 pods", float64(memory) / (1 << 20), "MB"},
	}
}

// eventDelay is how long a watch takes to tell of a change, from the moment at which it is asked for.
func eventDelay(t testing.TB, api pods) time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	list, err := api.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	events, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	const changes = 100
	begin := time.Now()
	for i := range changes {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"turn":"%d"}}}`, i)
		if _, err := api.Patch(ctx, "web-0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		<-events.ResultChan()
	}
	return time.Since(begin) / changes
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestCosts prints what each contender takes: the median of some runs, and the least and the most.
func TestCosts(t *testing.T) {
	const runs = 4
	columns := []string{"|"}
	rule := "|---|"
	var rows [][]string
	for i, c := range contenders() {
		columns = append(columns, c.name)
		rule += "---|"
		values := map[string][]float64{}
		var measured []cost
		for range runs {
			t.Run(c.name, func(t *testing.T) {
				measured = measure(t, c)
				t.Logf("%+v", measured)
			})
			for _, one := range measured {
				values[one.name] = append(values[one.name], one.value)
			}
		}
		for n, one := range measured {
			if i == 0 {
				rows = append(rows, []string{one.name + ", " + one.unit})
			}
			rows[n] = append(rows[n], spread(values[one.name]))
		}
	}
	text := "| " + strings.Join(columns, " | ")[2:] + " |\n" + rule + "\n"
	for _, row := range rows {
		text += "| " + strings.Join(row, " | ") + " |\n"
	}
	fmt.Print("\n", text, "\n")
}

// spread is the median, and the least and the most.
func spread(values []float64) string {
	slices.Sort(values)
	return fmt.Sprintf("%.3g (%.3g–%.3g)", values[len(values)/2], values[0], values[len(values)-1])
}
