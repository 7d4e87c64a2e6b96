package options

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"podcount/internal/api/leader"
	"podcount/internal/api/objectmeta"
	"podcount/internal/view/listen"
)

// check returns an error that names the first flag with a value that cannot be used. It also sets the options that
// depend on others: Once and Controllers.
func (c *commandLine) check() error {
	if c.Prune {
		c.Once = true
	}
	checks := []func() error{
		c.checkFlagsOfManifest,
		c.checkNamespaces,
		c.chooseControllers,
		c.checkSelectors,
		c.checkLabels,
		c.checkWords,
		c.checkNumbers,
		c.checkListen,
		c.checkPage,
		c.checkOnceTimeout,
		c.checkManifest,
		c.checkPageToken,
		c.checkLease,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkFlagsOfManifest refuses a flag that only changes the manifest if there is no -manifest. Whoever has forgotten
// that wants to print something, and not to write to the cluster.
func (c *commandLine) checkFlagsOfManifest() error {
	if c.manifestParts != "" {
		return nil
	}
	for _, name := range c.given() {
		if isOfManifest(name) && name != "manifest" { // -manifest=false is no manifest.
			return fmt.Errorf("-%s only changes what -manifest prints: add -manifest, or leave it out", name)
		}
	}
	return nil
}

// given returns the names of the flags on the command line.
func (c *commandLine) given() (names []string) {
	c.flags.Visit(func(f *flag.Flag) { names = append(names, f.Name) })
	return names
}

func (c *commandLine) checkNamespaces() error {
	flags := []struct{ name, value string }{
		{"namespace", c.Namespace},
		{"leader-elect-resource-namespace", c.LeaseNamespace},
		{"manifest-namespace", c.manifestNamespace},
	}
	for _, f := range flags {
		if f.value != "" && !isNamespace(f.value) {
			return fmt.Errorf("-%s %q cannot be the name of a namespace", f.name, f.value)
		}
	}
	return nil
}

// isNamespace reports whether a namespace can have this name: a DNS label.
func isNamespace(name string) bool {
	return objectmeta.CheckDNSName(name) == nil && !strings.Contains(name, ".") && len(name) <= 63
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

// checkSelectors checks the selectors for pods. NodeChoice.Set has checked that of -total-nodes.
func (c *commandLine) checkSelectors() error {
	if _, err := objectmeta.ParseSelector(c.PodSelector); err != nil {
		return fmt.Errorf("-pod-selector: %w", err)
	}
	if err := objectmeta.CheckFieldSelector(c.FieldSelector, "pods", c.program.PodFields); err != nil {
		return fmt.Errorf("-field-selector: %w", err)
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
	if hasPrefix && isReserved(prefix) {
		return fmt.Errorf("%s %s: labels under kubernetes.io and k8s.io are reserved for Kubernetes itself; "+
			"use a domain of your own", flag, key)
	}
	return nil
}

// isReserved reports whether a label's prefix belongs to Kubernetes.
func isReserved(prefix string) bool {
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if prefix == domain || strings.HasSuffix(prefix, "."+domain) {
			return true
		}
	}
	return false
}

// checkWords checks the flags that take one of a few words.
func (c *commandLine) checkWords() error {
	if c.Wire != "protobuf" && c.Wire != "json" {
		return fmt.Errorf("-wire %q: use protobuf or json", c.Wire)
	}
	if !slices.Contains([]string{"auto", "text", "json"}, c.LogFormat) {
		return fmt.Errorf("-log-format %q: use auto, text or json", c.LogFormat)
	}
	return nil
}

func (c *commandLine) checkNumbers() error {
	if c.Interval <= 0 {
		return fmt.Errorf("-interval is %v, but must be more than 0", c.Interval)
	}
	if c.OnceTimeout <= 0 {
		return fmt.Errorf("-once-timeout is %v, but must be more than 0", c.OnceTimeout)
	}
	isPositive := c.QPS > 0 // false for NaN, too
	if !isPositive {
		return fmt.Errorf("-qps is %v, but must be more than 0", c.QPS)
	}
	if c.Burst < 1 {
		return fmt.Errorf("-burst is %d, but must be 1 or more", c.Burst)
	}
	if c.Workers < 1 {
		return fmt.Errorf("-workers is %d, but must be 1 or more", c.Workers)
	}
	if c.Verbosity < 0 {
		return fmt.Errorf("-v is %d, but must be 0 or more", c.Verbosity)
	}
	return nil
}

// checkListen checks the syntax of -listen. It does not look up the host.
func (c *commandLine) checkListen() error {
	if c.Listen == "" {
		return nil
	}
	if err := checkAddress(c.Listen); err != nil {
		return fmt.Errorf("-listen: %w: use [HOST]:PORT", err)
	}
	return nil
}

// checkPage checks the syntax of -page, and that another port than that of -listen is meant.
func (c *commandLine) checkPage() error {
	if c.Page == "" {
		return nil
	}
	if err := checkAddress(c.Page); err != nil {
		return fmt.Errorf("-page: %w: use HOST:PORT", err)
	}
	port := portOf(c.Page)
	if c.Listen != "" && port != 0 && port == portOf(c.Listen) {
		return fmt.Errorf("-page %s and -listen %s have the same port: they need different ones", c.Page, c.Listen)
	}
	return nil
}

// checkPageToken returns an error if the page asks for a token without a page, or would show itself to other
// machines without a token.
func (c *commandLine) checkPageToken() error {
	if c.Page == "" && c.PageTokenFile != "" {
		return errors.New("-page-token-file has no effect without -page: add -page, or leave it out")
	}
	if c.Page != "" && c.PageTokenFile == "" && !c.isPageLocal() {
		return fmt.Errorf("-page %s: other machines could see the page: add -page-token-file FILE, "+
			"or use -page 127.0.0.1:PORT", c.Page)
	}
	return nil
}

// isPageLocal reports whether the page is only for this machine. checkPage must have checked -page.
func (c *commandLine) isPageLocal() bool {
	host, _, _ := net.SplitHostPort(c.Page) // The port may be a name, which IsLoopback does not accept.
	return listen.IsLoopback(host)
}

// checkAddress checks the syntax of [HOST]:PORT.
func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if port == "" {
		return fmt.Errorf("address %s: missing port in address", address)
	}
	_, err = net.LookupPort("tcp", port)
	return err
}

// portOf returns the port of an address that checkAddress has checked.
func portOf(address string) int {
	_, name, _ := net.SplitHostPort(address)
	port, _ := net.LookupPort("tcp", name)
	return port
}

func (c *commandLine) checkOnceTimeout() error {
	if c.OnceTimeout != defaultOnceTimeout && !c.Once {
		return errors.New("-once-timeout has no effect without -once or -prune: add one of them, or leave it out")
	}
	return nil
}

// checkLease checks the flags about leader election.
func (c *commandLine) checkLease() error {
	if c.Once && c.LeaderElect {
		return errors.New("-leader-elect cannot be combined with -once or -prune: leave out -leader-elect")
	}
	if err := objectmeta.CheckDNSName(c.LeaseName); err != nil {
		return fmt.Errorf("-leader-elect-resource-name: %w", err)
	}
	if c.LeaseDuration > leader.MaxLeaseDuration {
		return fmt.Errorf("-leader-elect-lease-duration %v is too long: a Lease can have at most %v",
			c.LeaseDuration, leader.MaxLeaseDuration)
	}
	if c.LeaseDuration%time.Second != 0 {
		return fmt.Errorf("-leader-elect-lease-duration %v must be whole seconds, as in a Lease", c.LeaseDuration)
	}
	isLongEnough := c.RenewDeadline > c.RetryPeriod && // else the next sum could overflow
		c.RenewDeadline > c.RetryPeriod+c.RetryPeriod/5
	if c.LeaseDuration <= c.RenewDeadline || !isLongEnough || c.RetryPeriod <= 0 {
		return fmt.Errorf("the flags must satisfy -leader-elect-lease-duration (%v) > -leader-elect-renew-deadline (%v) "+
			"> 1.2 × -leader-elect-retry-period (%v) > 0",
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod)
	}
	return nil
}
