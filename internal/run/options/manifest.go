package options

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"podcount/deploy"
)

// printManifest prints the YAML that -manifest asks for.
func (c *commandLine) printManifest(stdout io.Writer) error {
	if err := c.setManifestDefaults(); err != nil {
		return usageError(err)
	}
	if err := c.check(); err != nil {
		return usageError(err)
	}
	manifest, err := c.manifest()
	if err != nil {
		return usageError(err)
	}
	_, err = io.WriteString(stdout, manifest)
	return err
}

// setManifestDefaults sets the flags whose default in a cluster differs from that on a laptop, unless they are given.
// They then count as given, so that manifestArgs includes them.
func (c *commandLine) setManifestDefaults() error {
	values := map[string]string{"pod-events": "off"}
	if !c.Once {
		values["leader-elect"] = "true"
		values["listen"] = ":8080"
		values["page"] = "127.0.0.1:8081" // which kubectl port-forward reaches
	}
	c.flags.Visit(func(given *flag.Flag) { delete(values, given.Name) })
	for name, value := range values {
		if err := c.flags.Set(name, value); err != nil {
			return err
		}
	}
	return nil
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
	for _, part := range strings.Split(c.manifestParts, ",") {
		if c.Once && deploy.IsForPrometheus(part) {
			return fmt.Errorf("-manifest=%s is for a Deployment, not for a CronJob: leave out -once", part)
		}
	}
	if c.Once && c.Listen != "" {
		return errors.New("-manifest -once prints a CronJob, which ends too soon for probes and Prometheus: " +
			"leave out -listen")
	}
	if c.Once && c.Page != "" {
		return errors.New("-manifest -once prints a CronJob, which ends too soon to be looked at: leave out -page")
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
	if port != 0 {
		c.Listen = fmt.Sprintf(":%d", port) // without leading zeros, for manifestArgs
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

// flagsOfManifest are only for the manifest, and not for a podcount that runs.
var flagsOfManifest = []string{
	"manifest",
	"manifest-namespace",
	"manifest-node-selector",
	"manifest-requests",
	"manifest-limits",
	"image",
	"image-pull-secrets",
}

func isOfManifest(flag string) bool { return slices.Contains(flagsOfManifest, flag) }
