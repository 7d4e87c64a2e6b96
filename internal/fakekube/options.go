package fakekube

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// options are what a write says beside the object: CreateOptions, UpdateOptions or PatchOptions.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
type options struct {
	isDryRun bool

	// fieldValidation is what becomes of unknown and duplicate fields: "Strict", "Warn" or "Ignore".
	fieldValidation string
}

// managerLength is how many bytes the name of a field manager may have.
const managerLength = 128

// readOptions reads the options of a write from the query. Where they are invalid, it answers so and reports false.
// name is what the server calls them, such as "CreateOptions".
func (r *request) readOptions(name string) bool {
	causes := validateFieldManager(r.query.Get("fieldManager"))
	causes = append(causes, validateDryRun(r.query["dryRun"])...)
	validation := r.query.Get("fieldValidation")
	switch validation {
	case "":
		validation = "Warn"
	case "Ignore", "Strict", "Warn":
	default:
		causes = append(causes, notSupported("fieldValidation", validation, "", "Ignore", "Strict", "Warn"))
	}
	if r.info.Verb == "patch" {
		causes = append(r.validateApplyOptions(), causes...)
	}
	if len(causes) > 0 {
		r.refuseAs(name, "meta.k8s.io", "", causes)
		return false
	}
	r.options = options{isDryRun: len(r.query["dryRun"]) > 0, fieldValidation: validation}
	return true
}

// validateApplyOptions validates the options of a patch that are for server-side apply.
func (r *request) validateApplyOptions() []cause {
	isApply := strings.HasPrefix(r.Header.Get("Content-Type"), mediaApplyPatch)
	switch {
	case !isApply && r.query.Has("force"):
		return []cause{forbiddenField("force", "may not be specified for non-apply patch")}
	case isApply && r.query.Get("fieldManager") == "":
		return []cause{required("fieldManager", "is required for apply patch")}
	}
	return nil
}

// validateFieldManager validates the name of a field manager.
func validateFieldManager(manager string) []cause {
	var causes []cause
	if len(manager) > managerLength {
		causes = append(causes, tooLong("fieldManager", managerLength))
	}
	for i, char := range manager {
		if !unicode.IsPrint(char) {
			why := fmt.Sprintf("invalid character %#U (at position %d)", char, i)
			causes = append(causes, invalidValue("fieldManager", manager, why))
		}
	}
	return causes
}

// validateDryRun validates the values of dryRun. "All" is the only one that there is.
func validateDryRun(values []string) []cause {
	for _, value := range values {
		if value != "All" {
			return []cause{notSupported("dryRun", values, "All")}
		}
	}
	return nil
}

// deletion is what a DELETE says beside the object's name: its DeleteOptions.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
type deletion struct {
	isDryRun bool

	// uid and version are what the object must have to be deleted; nil: any.
	uid, version *string

	// grace is how many seconds a pod may take to end; nil: what the pod itself says.
	grace *int64

	// policy is what the garbage collector is to do with the objects that the deleted one owns: "Background",
	// "Foreground" or "Orphan"; "": as the object's finalizers say.
	policy string
}

// readDeleteOptions reads what a DELETE says: in its body or, where it has none, in its query. Where that is invalid, it
// answers so and returns nil.
func (r *request) readDeleteOptions() *deletion {
	if len(r.body) > 0 && !r.convertBodyToJSON() {
		return nil
	}
	return r.parseDeleteOptions(r.body)
}

// parseDeleteOptions reads DeleteOptions in JSON or, where that is empty, in the query. Where they are invalid, it answers so
// and returns nil.
func (r *request) parseDeleteOptions(body []byte) *deletion {
	said := r.decodeDeleteOptions(body)
	if said == nil {
		return nil
	}
	policy, causes := said.policy()
	causes = append(causes, validateDryRun(said.DryRun)...)
	if len(causes) > 0 {
		r.refuseAs("DeleteOptions", "meta.k8s.io", "", causes)
		return nil
	}
	return &deletion{
		isDryRun: len(said.DryRun) > 0,
		uid:      said.Preconditions.UID,
		version:  said.Preconditions.ResourceVersion,
		grace:    said.GracePeriodSeconds,
		policy:   policy,
	}
}

// decodeDeleteOptions are DeleteOptions as a client writes them. What it leaves out is nil.
type deleteOptions struct {
	DryRun             []string `json:"dryRun"`
	GracePeriodSeconds *int64   `json:"gracePeriodSeconds"`
	OrphanDependents   *bool    `json:"orphanDependents"`
	PropagationPolicy  *string  `json:"propagationPolicy"`
	Preconditions      struct {
		UID             *string `json:"uid"`
		ResourceVersion *string `json:"resourceVersion"`
	} `json:"preconditions"`
}

// decodeDeleteOptions reads DeleteOptions in JSON or, where that is empty, in the query. Where it cannot, it answers so and
// returns nil.
func (r *request) decodeDeleteOptions(body []byte) *deleteOptions {
	if len(body) > 0 {
		type DeleteOptions deleteOptions // encoding/json says this name where a value is not of its type
		var said DeleteOptions
		if !r.decodeOptions(body, "DeleteOptions", &said) {
			return nil
		}
		return (*deleteOptions)(&said)
	}
	said := &deleteOptions{DryRun: r.query["dryRun"]}
	if r.query.Has("gracePeriodSeconds") {
		seconds, err := strconv.ParseInt(r.query.Get("gracePeriodSeconds"), 10, 64)
		if err != nil {
			r.badRequest(err.Error())
			return nil
		}
		said.GracePeriodSeconds = &seconds
	}
	if r.query.Has("propagationPolicy") {
		policy := r.query.Get("propagationPolicy")
		said.PropagationPolicy = &policy
	}
	if r.query.Has("orphanDependents") {
		orphans := r.query.Get("orphanDependents") != "false" && r.query.Get("orphanDependents") != "0"
		said.OrphanDependents = &orphans
	}
	return said
}

// policy is what the garbage collector is to do, as in a deletion, and what is wrong with how the client says that.
func (said *deleteOptions) policy() (policy string, causes []cause) {
	orphans := said.OrphanDependents
	if said.PropagationPolicy == nil {
		switch {
		case orphans == nil:
			return "", nil
		case *orphans:
			return "Orphan", nil
		}
		return "Background", nil
	}
	policy = *said.PropagationPolicy
	if orphans != nil {
		why := "orphanDependents and deletionPropagation cannot be both set"
		causes = append(causes, invalidValue("propagationPolicy", policy, why))
	}
	switch policy {
	case "Foreground", "Background", "Orphan":
	default:
		refused := notSupported("propagationPolicy", policy, "Foreground", "Background", "Orphan", "nil")
		causes = append(causes, refused)
	}
	return policy, causes
}
