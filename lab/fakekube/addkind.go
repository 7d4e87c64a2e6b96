package fakekube

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Kind describes a built-in kind that the fake does not know by itself, for Serve. Most kinds need only the first four
// fields, and those of the core group only three:
//
//	Kind{Resource: "services", Kind: "Service"}
//	Kind{Group: "apps", Resource: "deployments", Kind: "Deployment", ShortNames: []string{"deploy"}}
//
// A kind of your own is a custom resource: Put its CustomResourceDefinition, and it has a schema and columns, too.
type Kind struct {
	Group   string // such as "apps"; "" for the core group
	Version string // such as "v2"; "" means v1

	Resource string // the plural, as in paths, such as "services"
	Kind     string // as in objects, such as "Service"
	Singular string // kubectl's word for one object; "" means the kind in lower case

	ShortNames []string // kubectl's abbreviations, such as "svc"
	Categories []string // kubectl's groups of resources, such as "all"

	// ClusterScoped means that the objects are in no namespace.
	ClusterScoped bool

	// WithoutStatus means that the status is no subresource: requests to it get a 404, and a write to the object may
	// change a field of that name.
	WithoutStatus bool
}

// Serve makes the fake serve kinds like its own, from the next request on: under their real paths, with discovery,
// watches, tables, patches, RBAC and Put. Call it before Put stores their objects.
//
// Of these kinds the fake knows the metadata, and validates it. Everything else is stored as sent: nothing is refused,
// filled in or pruned. Field selectors know the name and the namespace, and a table shows the name and the age. A
// change of the spec raises the generation, and a DELETE is answered with a Status. So do most kinds of a real server;
// Services have no generation, for example, and answer with the object.
//
// Their bodies must be JSON. Clients of client-go and controller-runtime send them in protobuf unless rest.Config has
// the ContentType "application/json".
//
// A strategic merge patch merges objects, the lists of the metadata, and the lists with the name conditions, by their
// type. kubectl names the order of a list's items in its patch, so the fake takes the key of other lists from there.
// Without that, a list replaces the one before, as in a JSON merge patch.
//
// Serve panics if a kind lacks its plural or its name, if a name is invalid, or if the fake serves it already.
func (s *Server) Serve(kinds ...Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, described := range kinds {
		added := described.served()
		problem := cmp.Or(added.problem(), added.conflictWith(s.kinds))
		if problem != "" {
			panic(fmt.Sprintf("Serve: %s, in %+v", problem, described))
		}
		i := slices.IndexFunc(s.kinds, kind.isCustom)
		if i < 0 {
			i = len(s.kinds)
		}
		s.kinds = slices.Insert(slices.Clone(s.kinds), i, added)
	}
}

// served returns the kind as the fake serves it, with its defaults.
func (k Kind) served() kind {
	return kind{
		group:        k.Group,
		version:      cmp.Or(k.Version, "v1"),
		resource:     k.Resource,
		kind:         k.Kind,
		singular:     cmp.Or(k.Singular, strings.ToLower(k.Kind)),
		shortNames:   slices.Clone(k.ShortNames),
		categories:   slices.Clone(k.Categories),
		isNamespaced: !k.ClusterScoped,
		hasStatus:    !k.WithoutStatus,
		isAdded:      true,
	}
}

// Syntax of what Serve gets. Real kinds keep to it.
var (
	kindSyntax         = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	addedVersionSyntax = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
)

// problem says why the kind cannot be served. It returns "" if it can.
func (k kind) problem() string {
	switch {
	case k.resource == "":
		return `Resource is missing: the plural, such as "services"`
	case k.kind == "":
		return `Kind is missing: the name in objects, such as "Service"`
	case !kindSyntax.MatchString(k.kind):
		return fmt.Sprintf("Kind %q must be a word that begins with a capital letter", k.kind)
	case !addedVersionSyntax.MatchString(k.version):
		return fmt.Sprintf(`Version %q must be like "v1" or "v2beta1"`, k.version)
	case k.group == "" && k.version != "v1":
		return fmt.Sprintf("Version %q: the core group has only v1", k.version)
	case k.group != "" && subdomainProblem(k.group) != "":
		return fmt.Sprintf("Group %q: %s", k.group, subdomainProblem(k.group))
	}
	for _, name := range slices.Concat([]string{k.resource, k.singular}, k.shortNames, k.categories) {
		if problem := dnsLabelProblem(name); problem != "" {
			return fmt.Sprintf("%q: %s", name, problem)
		}
	}
	return ""
}

// conflictWith says which of the served kinds takes the place of this one. It returns "" if none does.
func (k kind) conflictWith(kinds []kind) string {
	for _, other := range kinds {
		hasSameName := other.group == k.group && (other.resource == k.resource || other.kind == k.kind)
		if hasSameName {
			return fmt.Sprintf("it serves the %s %s of %s already", other.resource, other.kind, other.apiVersion())
		}
	}
	return ""
}
