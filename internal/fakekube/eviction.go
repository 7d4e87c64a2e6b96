package fakekube

import "encoding/json"

// evict answers a POST to the subresource eviction of a pod, as kubectl drain sends it: it deletes the pod. The fake
// has no PodDisruptionBudgets, which could keep it from that.
// https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
func (s *Server) evict(r *request) {
	if !r.isReadable() || !r.readOptions("CreateOptions") {
		return
	}
	var eviction struct {
		Metadata struct {
			Name string `json:"name"`
		} `json:"metadata"`
		DeleteOptions json.RawMessage `json:"deleteOptions"`
	}
	if err := json.Unmarshal(r.body, &eviction); err != nil {
		r.badRequest("Eviction in version \"v1\" cannot be handled as a Eviction: " + err.Error())
		return
	}
	if eviction.Metadata.Name != r.key.Name {
		r.badRequest("name in URL does not match name in Eviction object")
		return
	}
	d := r.deletionIn(eviction.DeleteOptions)
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
	if message := d.mismatch(r.kind, pod); message != "" {
		r.failedPrecondition(message)
		return
	}
	if !d.isDryRun && !isDying(pod) {
		pod = s.replaceLocked(r.kind, disrupted(pod), false)
	}
	s.deleteLocked(r.kind, pod, d)
	r.answer(201, Object{
		"kind":       "Status",
		"apiVersion": "v1",
		"metadata":   Object{},
		"status":     "Success",
		"code":       201,
	})
}

// disrupted is a pod that says why it is deleted.
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
