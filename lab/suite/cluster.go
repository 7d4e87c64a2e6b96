package suite

import (
	"fmt"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// addNodes adds the nodes n0 to n(count-1).
func addNodes(f *fakekube.Server, count int) {
	for i := range count {
		f.AddNode(fmt.Sprint("n", i))
	}
}

// Churn adds a pod each second for a number of seconds. It removes every other pod again after a second.
func Churn(f *fakekube.Server, seconds int) {
	nodes := []string{"cp", "other", "worker", ""}
	for i := range seconds {
		name := fmt.Sprintf("life-%d", time.Now().Unix())
		f.AddPod("default", name, nodes[i%len(nodes)])
		testkit.Pass(time.Second)
		isShortLived := i%2 == 1
		if isShortLived {
			f.Remove("pods", At("default", name))
		}
	}
}
