package fakekube

import "maps"

// writable is what becomes of old where a client writes o: the parts that the client may not write are as they were,
// and what it leaves out gets its default. old is nil where there is none yet.
func (k kind) writable(old, o Object, isStatus bool) Object {
	registersItself := old == nil && k.qualified() == "nodes" // with its status
	if k.hasStatus && !registersItself {
		o = k.partOf(old, o, isStatus)
	}
	if k.dropsStatus() {
		delete(o, "status")
	}
	return o
}

// partOf is what becomes of old where o is written: whoever writes to the status changes nothing else, and the
// other way round. The status of a built-in kind takes changes of the metadata along.
func (k kind) partOf(old, o Object, isStatus bool) Object {
	part := maps.Clone(o)
	status := old["status"]
	if isStatus {
		part = Clone(old)
		status = o["status"]
		if !k.isCustom() && !k.isDefinition() {
			part["metadata"] = o["metadata"]
		}
	}
	part["status"] = status
	if status == nil {
		delete(part, "status")
	}
	return part
}
