package fakekube

import "encoding/json"

// evict answers a POST to the subresource eviction, as kubectl drain sends it, by deleting the pod. The fake has no
// PodDisruptionBudgets that could prevent it.
// https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
func (s *Server) evict(r *request) {
	if !r.convertBodyToJSON() || !r.readOptions("CreateOptions") {
		return
	}
	eviction := r.decodeObjectAs(evictionKind(r.body))
	if eviction == nil || !r.checkNamespaceInPath(eviction) {
		return
	}
	if TextIn(MetaOf(eviction), "name") != r.key.Name {
		r.badRequest("name in URL does not match name in Eviction object")
		return
	}
	options, err := json.Marshal(eviction["deleteOptions"])
	if err != nil {
		r.internalError(err.Error())
		return
	}
	d := r.parseDeleteOptions(options)
	if d == nil {
		return
	}
	d.isDryRun = d.isDryRun || r.options.isDryRun
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.objects["pods"][r.key]
	if pod == nil {
		r.notFound()
		return
	}
	if message := d.failedPrecondition(r.kind, pod); message != "" {
		r.failedPrecondition(message)
		return
	}
	if !d.isDryRun && !isTerminating(pod) {
		pod = s.replaceLocked(r.kind, disrupted(pod), false)
	}
	s.deleteLocked(r.kind, pod, d)
	r.succeed()
}

// evictionKind returns the kind of an eviction's body. Like the server, it also accepts policy/v1beta1.
func evictionKind(body []byte) kind {
	k := kind{group: "policy", version: "v1", kind: "Eviction"}
	if sent, err := typeOf(body); err == nil && sent.APIVersion == "policy/v1beta1" {
		k.version = "v1beta1"
	}
	return k
}

// disrupted returns a pod with the condition that explains its deletion.
func disrupted(pod Object) Object {
	marked := Clone(pod)
	status := partIn(marked, "status")
	setCondition(status, "DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")
	for _, condition := range objectsIn(status["conditions"]) {
		if TextIn(condition, "type") == "DisruptionTarget" {
			condition["lastProbeTime"] = nil
		}
	}
	return marked
}
