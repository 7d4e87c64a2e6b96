package main

import "podcount/lab/fakekube"

// container is what a kubelet reads from a pod's spec, about its first container.
type container struct{ name, image string }

// containerOf reads a pod's spec.
func containerOf(pod object) container {
	spec, _ := pod["spec"].(object)
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return container{}
	}
	first, _ := containers[0].(object)
	return container{name: fakekube.TextIn(first, "name"), image: fakekube.TextIn(first, "image")}
}

// imageSize invents the size of an image, in bytes.
func imageSize(image string) int { return 20_000_000 + len(image)*1_234_567 }
