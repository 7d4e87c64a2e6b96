package options

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"podcount/internal/api/objectmeta"
	"podcount/internal/view/listen"
)

// check returns an error that names the first flag with a value that cannot be used. It also sets the options that
// depend on others: Once and Controllers.
func (c *commandLine) check() error {
	if c.Prune {
		c.Once = true
	}
	for _, check := range []func() error{
		c.checkFlagsOfManifest,
		c.checkNamespaces,
		c.chooseControllers,
		c.checkSelectors,
		c.checkLabels,
		c.checkValues,
		c.checkAddresses,
		c.checkManifest,
		c.checkPageToken,
		c.checkLease,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkFlagsOfManifest refuses a flag that only changes the manifest if there is no -manifest. Whoever has forgotten
// that wants to print something, and not to write to the cluster.
func (c *commandLine) checkFlagsOfManifest() (err error) {
	c.flags.Visit(func(f *flag.Flag) {
		if isOfManifest(f.Name) && c.manifestParts == "" {
			err = fmt.Errorf("-%s only changes what -manifest prints: add -manifest, or leave it out", f.Name)
		}
	})
	return err
}

func (c *commandLine) checkNamespaces() error {
	flags := []struct{ name, value string }{
		{"namespace", c.Namespace},
		{"leader-elect-resource-namespace", c.LeaseNamespace},
		{"manifest-namespace", c.manifestNamespace},
	}
	for _, f := range flags {
		isLabel := objectmeta.CheckDNSName(f.value) == nil && !strings.Contains(f.value, ".") && len(f.value) <= 63
		isLeftOut := f.value == "" && f.name != "manifest-namespace"
		if !isLabel && !isLeftOut {
			return fmt.Errorf("-%s %q cannot be the name of a namespace", f.name, f.value)
		}
	}
	return nil
}

// chooseControllers checks -controllers, and sets Options.Controllers.
func (c *commandLine) chooseControllers() error {
	words := strings.Split(c.controllerList, ",")
	var names []string
	for _, controller := range c.program.Controllers {
		names = append(names, controller.Name)
		if controller.isOn(words) {
			c.Controllers = append(c.Controllers, controller.Name)
		}
	}
	for _, word := range words {
		isKnown := word == "*" || slices.Contains(names, strings.TrimPrefix(word, "-"))
		if !isKnown {
			return fmt.Errorf("-controllers: unknown controller %q; the controllers are %s", word, strings.Join(names, ", "))
		}
	}
	if len(c.Controllers) == 0 {
		return fmt.Errorf("-controllers %s leaves no controller to run", c.controllerList)
	}
	if c.Prune {
		c.Controllers = []string{"pod-count"} // the one that writes the labels to remove
	}
	return nil
}

// isOn reports whether the words of -controllers switch the controller on. The first word that names it decides. If
// none does, "*" stands for the controllers that are on by default.
func (controller Controller) isOn(words []string) bool {
	for _, word := range words {
		if word == controller.Name {
			return true
		}
		if word == "-"+controller.Name {
			return false
		}
	}
	return slices.Contains(words, "*") && !controller.Off
}

// checkSelectors checks the selector for pods. NodeChoice.Set has checked that of -total-nodes, and the API server
// checks -field-selector.
func (c *commandLine) checkSelectors() error {
	if _, err := objectmeta.ParseSelector(c.PodSelector); err != nil {
		return fmt.Errorf("-pod-selector: %w", err)
	}
	return nil
}

func (c *commandLine) checkLabels() error {
	if err := c.checkLabel("-total-label", c.TotalLabel); err != nil {
		return err
	}
	if c.NodeLabel == "" {
		return nil
	}
	if err := c.checkLabel("-node-label", c.NodeLabel); err != nil {
		return err
	}
	if c.NodeLabel == c.TotalLabel {
		return fmt.Errorf("-node-label and -total-label are both %s: they need different keys", c.NodeLabel)
	}
	return nil
}

// checkLabel checks the key of a label that podcount would write.
func (c *commandLine) checkLabel(flag, key string) error {
	if err := objectmeta.CheckLabelKey(key); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	// A new value of the label could change which nodes are selected.
	if slices.Contains(c.TotalNodes.Keys(), key) {
		return fmt.Errorf("-total-nodes selects by %s, the %s, whose value podcount itself changes: "+
			"select by another label", key, flag)
	}
	prefix, _, hasPrefix := strings.Cut(key, "/")
	isUnder := func(domain string) bool { return prefix == domain || strings.HasSuffix(prefix, "."+domain) }
	if hasPrefix && (isUnder("kubernetes.io") || isUnder("k8s.io")) {
		return fmt.Errorf("%s %s: labels under kubernetes.io and k8s.io are reserved for Kubernetes itself; "+
			"use a domain of your own", flag, key)
	}
	return nil
}

// checkValues checks flags that allow a few words, or not all numbers.
func (c *commandLine) checkValues() error {
	rules := []struct {
		flag  string
		value any
		isMet bool
		rule  string
	}{
		{"interval", c.Interval, c.Interval > 0, "more than 0"},
		{"once-timeout", c.OnceTimeout, c.OnceTimeout > 0, "more than 0"},
		{"qps", c.QPS, c.QPS > 0, "more than 0"}, // which NaN is not
		{"burst", c.Burst, c.Burst >= 1, "1 or more"},
		{"workers", c.Workers, c.Workers >= 1, "1 or more"},
		{"v", c.Verbosity, c.Verbosity >= 0, "0 or more"},
		{"wire", c.Wire, c.Wire == "protobuf" || c.Wire == "json", "protobuf or json"},
		{
			"log-format", c.LogFormat, slices.Contains([]string{"auto", "text", "json"}, c.LogFormat),
			"auto, text or json",
		},
		{
			"leader-elect-lease-duration", c.LeaseDuration, c.LeaseDuration%time.Second == 0,
			"whole seconds, as in a Lease",
		},
	}
	for _, r := range rules {
		if !r.isMet {
			return fmt.Errorf("-%s is %v, but must be %s", r.flag, r.value, r.rule)
		}
	}
	return nil
}

// checkAddresses checks the syntax of -listen and -page, and that they have different ports. It looks up no host.
func (c *commandLine) checkAddresses() error {
	listenPort, listenErr := portOf("-listen", c.Listen)
	pagePort, pageErr := portOf("-page", c.Page)
	if pagePort != 0 && pagePort == listenPort {
		return fmt.Errorf("-page %s and -listen %s have the same port: they need different ones", c.Page, c.Listen)
	}
	return cmp.Or(listenErr, pageErr)
}

// portOf returns the port of [HOST]:PORT, which may be a name, or 0 if the flag is not set.
func portOf(flag, address string) (port int, err error) {
	if address == "" {
		return 0, nil
	}
	_, name, err := net.SplitHostPort(address)
	if err == nil {
		port, err = net.LookupPort("tcp", name)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w: use [HOST]:PORT", flag, err)
	}
	return port, nil
}

// checkPageToken returns an error if the page would show itself to other machines without a token.
func (c *commandLine) checkPageToken() error {
	if c.Page != "" && c.PageTokenFile == "" && !c.isPageLocal() {
		return fmt.Errorf("-page %s: other machines could see the page: add -page-token-file FILE, "+
			"or use -page 127.0.0.1:PORT", c.Page)
	}
	return nil
}

// isPageLocal reports whether the page is only for this machine. checkAddresses must have checked -page.
func (c *commandLine) isPageLocal() bool {
	host, _, _ := net.SplitHostPort(c.Page) // The port may be a name, which IsLoopback does not accept.
	return listen.IsLoopback(host)
}

// checkLease checks the flags about leader election.
func (c *commandLine) checkLease() error {
	if c.Once && c.LeaderElect {
		return errors.New("-leader-elect cannot be combined with -once or -prune: leave out -leader-elect")
	}
	if err := objectmeta.CheckDNSName(c.LeaseName); err != nil {
		return fmt.Errorf("-leader-elect-resource-name: %w", err)
	}
	isShortEnough := c.RetryPeriod > 0 && c.RetryPeriod < c.RenewDeadline/6*5
	if c.LeaseDuration <= c.RenewDeadline || !isShortEnough {
		return fmt.Errorf("the flags must satisfy -leader-elect-lease-duration (%v) > -leader-elect-renew-deadline (%v) "+
			"> 1.2 × -leader-elect-retry-period (%v) > 0",
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod)
	}
	return nil
}
