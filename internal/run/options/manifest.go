package options

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"podcount/deploy"
)

// printManifest prints the YAML that -manifest asks for.
func (c *commandLine) printManifest(stdout io.Writer) error {
	c.setManifestDefaults()
	if err := c.check(); err != nil {
		return usageError(err)
	}
	manifest, err := c.manifest()
	if err != nil {
		return usageError(err)
	}
	return printText(manifest)(stdout)
}

// setManifestDefaults sets the flags whose default in a cluster differs from that on a laptop, unless they are given.
// They then count as given, so that manifestArgs includes them.
func (c *commandLine) setManifestDefaults() {
	values := map[string]string{"pod-events": "off"}
	if !c.Once {
		values["leader-elect"] = "true"
		values["listen"] = ":8080"
		values["page"] = "127.0.0.1:8081" // which kubectl port-forward reaches
	}
	c.flags.Visit(func(given *flag.Flag) { delete(values, given.Name) })
	for name, value := range values {
		c.flags.Set(name, value) // These values are right, so there is no error.
	}
}

// checkManifest returns an error if -manifest is given together with a flag that excludes it.
func (c *commandLine) checkManifest() error {
	if c.manifestParts == "" {
		return nil
	}
	if c.Kubeconfig != "" || c.Context != "" || c.Prune {
		return errors.New("-manifest prints a Deployment, or with -once a CronJob, " +
			"which has no kubeconfig and prunes nothing: leave out -kubeconfig, -context and -prune")
	}
	if c.Once && (c.Listen != "" || c.Page != "") {
		return errors.New("-manifest -once prints a CronJob, which ends too soon for probes, Prometheus and a page: " +
			"leave out -listen and -page")
	}
	if c.PageTokenFile != "" || c.Page != "" && !c.isPageLocal() {
		return errors.New("-manifest mounts no token for the page: leave out -page-token-file, " +
			"use -page 127.0.0.1:PORT, and look at it through kubectl port-forward")
	}
	return nil
}

// manifest returns the YAML that runs podcount in a cluster with these flags.
func (c *commandLine) manifest() (string, error) {
	port, err := c.manifestPort()
	if err != nil {
		return "", err
	}
	settings := deploy.Settings{
		Name:           c.LeaseName,
		Namespace:      c.manifestNamespace,
		Image:          c.image,
		Args:           c.manifestArgs(),
		Port:           port,
		Pods:           c.pods,
		PodCount:       c.IsOn("pod-count"),
		Count:          c.IsOn("count"),
		PodEvents:      c.PodEvents,
		DryRun:         c.DryRun,
		LeaderElect:    c.LeaderElect,
		Once:           c.Once,
		Labels:         []string{c.TotalLabel},
		PodNamespace:   c.Namespace,
		LeaseNamespace: cmp.Or(c.LeaseNamespace, c.manifestNamespace),
		QPS:            c.QPS,
		StuckAfter:     c.StuckAfter(),
		LeaseDuration:  c.LeaseDuration,
	}
	for _, controller := range c.program.Controllers {
		if c.IsOn(controller.Name) {
			settings.Rights = append(settings.Rights, controller.Rights...)
		}
	}
	if c.NodeLabel != "" {
		settings.Labels = append(settings.Labels, c.NodeLabel)
	}
	return deploy.Manifest(settings, strings.Split(c.manifestParts, ",")...)
}

// manifestPort returns the port of -listen, or 0 if podcount does not listen.
func (c *commandLine) manifestPort() (int, error) {
	if c.Listen == "" {
		return 0, nil
	}
	port, err := strconv.ParseUint(strings.TrimPrefix(c.Listen, ":"), 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("-manifest: -listen %s must be :PORT, with a number: "+
			"the kubelet connects to the address of the pod", c.Listen)
	}
	return int(port), nil
}

// manifestArgs returns the flags for podcount in the cluster: those that were given, or set by setManifestDefaults.
func (c *commandLine) manifestArgs() []string {
	var args []string
	c.flags.Visit(func(f *flag.Flag) {
		if !isOfManifest(f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// isOfManifest reports whether a flag is only for the manifest, and not for a podcount that runs.
func isOfManifest(flag string) bool {
	return strings.HasPrefix(flag, "manifest") || flag == "image" || flag == "image-pull-secrets"
}
