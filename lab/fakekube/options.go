package fakekube

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// options are the parsed CreateOptions, UpdateOptions or PatchOptions of a write.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
type options struct {
	isDryRun bool

	// fieldValidation decides how to treat unknown and duplicate fields: "Strict", "Warn" or "Ignore".
	fieldValidation string
}

// managerLength is the size limit of a field manager's name in bytes.
const managerLength = 128

// readOptions parses and validates the options of a write from the query. If they are invalid, it answers so and
// returns false. name is their type, such as "CreateOptions".
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

// validateApplyOptions validates the options of a patch that concern server-side apply.
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
			reason := fmt.Sprintf("invalid character %#U (at position %d)", char, i)
			causes = append(causes, invalidValue("fieldManager", manager, reason))
		}
	}
	return causes
}

// validateDryRun validates the values of dryRun. Only "All" is allowed.
func validateDryRun(values []string) []cause {
	for _, value := range values {
		if value != "All" {
			return []cause{notSupported("dryRun", values, "All")}
		}
	}
	return nil
}

// deletion is the parsed DeleteOptions of a DELETE.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/delete-options/
type deletion struct {
	isDryRun bool

	// uid and version are preconditions. nil accepts any value.
	uid, version *string

	// grace is the grace period of a pod in seconds. nil means the pod's own.
	grace *int64

	// policy is what the garbage collector does with dependent objects: "Background", "Foreground" or "Orphan". ""
	// leaves it to the object's finalizers.
	policy string
}

// readDeleteOptions parses the options of a DELETE from its body or, if that is empty, from its query. If they are
// invalid, it answers so and returns nil.
func (r *request) readDeleteOptions() *deletion {
	if len(r.body) > 0 && !r.convertBodyToJSON() {
		return nil
	}
	return r.parseDeleteOptions(r.body)
}

// parseDeleteOptions parses DeleteOptions from JSON or, if body is empty, from the query. If they are invalid, it
// answers so and returns nil.
func (r *request) parseDeleteOptions(body []byte) *deletion {
	sent := r.decodeDeleteOptions(body)
	if sent == nil {
		return nil
	}
	policy, causes := sent.policy()
	causes = append(causes, validateDryRun(sent.DryRun)...)
	if len(causes) > 0 {
		r.refuseAs("DeleteOptions", "meta.k8s.io", "", causes)
		return nil
	}
	return &deletion{
		isDryRun: len(sent.DryRun) > 0,
		uid:      sent.Preconditions.UID,
		version:  sent.Preconditions.ResourceVersion,
		grace:    sent.GracePeriodSeconds,
		policy:   policy,
	}
}

// deleteOptions are DeleteOptions as sent. Missing values are nil.
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

// decodeDeleteOptions decodes DeleteOptions from JSON or, if body is empty, from the query. If that fails, it answers
// so and returns nil.
func (r *request) decodeDeleteOptions(body []byte) *deleteOptions {
	if len(body) > 0 {
		type DeleteOptions deleteOptions // encoding/json's errors contain this name
		var sent DeleteOptions
		if !r.decodeOptions(body, "DeleteOptions", &sent) {
			return nil
		}
		return (*deleteOptions)(&sent)
	}
	sent := &deleteOptions{DryRun: r.query["dryRun"]}
	if r.query.Has("gracePeriodSeconds") {
		seconds, err := strconv.ParseInt(r.query.Get("gracePeriodSeconds"), 10, 64)
		if err != nil {
			r.badRequest(err.Error())
			return nil
		}
		sent.GracePeriodSeconds = &seconds
	}
	if r.query.Has("propagationPolicy") {
		policy := r.query.Get("propagationPolicy")
		sent.PropagationPolicy = &policy
	}
	if r.query.Has("orphanDependents") {
		orphans := r.query.Get("orphanDependents") != "false" && r.query.Get("orphanDependents") != "0"
		sent.OrphanDependents = &orphans
	}
	return sent
}

// policy returns the propagation policy, and the problems with how the client set it.
func (sent *deleteOptions) policy() (policy string, causes []cause) {
	orphans := sent.OrphanDependents
	if sent.PropagationPolicy == nil {
		switch {
		case orphans == nil:
			return "", nil
		case *orphans:
			return "Orphan", nil
		}
		return "Background", nil
	}
	policy = *sent.PropagationPolicy
	if orphans != nil {
		reason := "orphanDependents and deletionPropagation cannot be both set"
		causes = append(causes, invalidValue("propagationPolicy", policy, reason))
	}
	switch policy {
	case "Foreground", "Background", "Orphan":
	default:
		refused := notSupported("propagationPolicy", policy, "Foreground", "Background", "Orphan", "nil")
		causes = append(causes, refused)
	}
	return policy, causes
}
