package options

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/deploy"
	"podcount/internal/kube"
)

// manifestDefaults are the flags that -manifest puts before those given: what suits a cluster, not a laptop.
func (o *Options) manifestDefaults() []string {
	if o.Once {
		return []string{"-pod-events=off"}
	}
	return []string{"-leader-elect", "-listen=:8080", "-pod-events=off"}
}

// checkManifest returns an error if -manifest is given together with flags that do not suit it.
func (o *Options) checkManifest() error {
	if o.manifest == "" {
		return nil
	}
	if o.Kubeconfig != "" || o.Context != "" || o.Prune {
		return errors.New("-manifest prints a Deployment, or with -once a CronJob, " +
			"which has no kubeconfig and prunes nothing: leave out -kubeconfig, -context and -prune")
	}
	if o.Once && slices.Contains(strings.Split(o.manifest, ","), "alerts") {
		return errors.New("-manifest=alerts has nothing to say about a CronJob: leave out -once")
	}
	if o.Once && o.Listen != "" {
		return errors.New("-manifest -once prints a CronJob, which ends before anybody asks it anything: leave out -listen")
	}
	return nil
}

// makeManifest returns what a cluster is given to run podcount with these flags.
func (o *Options) makeManifest(fs *flag.FlagSet) (string, error) {
	s := deploy.Settings{
		Name:           o.LeaseName,
		Namespace:      o.home,
		Image:          o.image,
		PodEvents:      o.PodEvents,
		DryRun:         o.DryRun,
		LeaderElect:    o.LeaderElect,
		Once:           o.Once,
		Labels:         []string{o.TotalLabel},
		PodNamespace:   o.Namespace,
		LeaseNamespace: cmp.Or(o.LeaseNamespace, o.home),
		QPS:            o.QPS,
		StuckAfter:     o.StuckAfter(),
		LeaseDuration:  o.LeaseDuration,
	}
	if o.NodeLabel != "" {
		s.Labels = append(s.Labels, o.NodeLabel)
	}
	if o.Listen != "" {
		port, err := strconv.ParseUint(strings.TrimPrefix(o.Listen, ":"), 10, 16)
		if err != nil || port == 0 {
			return "", fmt.Errorf("-manifest: -listen %s must be :PORT, a number: kubelet asks at the pod's own address", o.Listen)
		}
		s.Port = int(port)
		o.Listen = fmt.Sprintf(":%d", port) // no leading zeros in what fs.Visit finds below
	}
	s.PodCount = o.IsOn("pod-count")
	s.Count = o.IsOn("count")
	fs.Visit(func(f *flag.Flag) {
		if f.Name != "manifest" && f.Name != "image" && f.Name != "manifest-namespace" {
			s.Args = append(s.Args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return deploy.Manifest(s, strings.Split(o.manifest, ",")...)
}

// StuckAfter is how long a reconcile may take: it may wait for its turn under -qps, and then for its request.
func (o *Options) StuckAfter() time.Duration {
	turn := time.Duration(min(float64(o.Workers)/o.QPS, 1e6) * float64(time.Second))
	return turn + 2*kube.RequestTimeout
}
