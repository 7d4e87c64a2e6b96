package fakekube

// specCauses are what is wrong with an object beside its metadata.
func (k kind) specCauses(old, o Object) []cause {
	switch k.qualified() {
	case "events":
		return eventCauses(o)
	case "leases.coordination.k8s.io":
		return leaseCauses(o)
	}
	return nil
}

// eventCauses are what is wrong with an Event.
func eventCauses(o Object) []cause {
	about := objectIn(o, "involvedObject")
	namespace := TextIn(MetaOf(o), "namespace")
	named := TextIn(about, "namespace")
	isOfCluster := named == "" && namespace == "default"
	if named != namespace && !isOfCluster {
		return []cause{invalidValue("involvedObject.namespace", named, "does not match event.namespace")}
	}
	return nil
}

// leaseCauses are what is wrong with a Lease.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
func leaseCauses(o Object) []cause {
	var causes []cause
	spec := objectIn(o, "spec")
	if seconds, isSet := spec["leaseDurationSeconds"].(float64); isSet && seconds <= 0 {
		causes = append(causes, invalidValue("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
	}
	if count, isSet := spec["leaseTransitions"].(float64); isSet && count < 0 {
		causes = append(causes, invalidValue("spec.leaseTransitions", count, "must be greater than or equal to 0"))
	}
	return causes
}
