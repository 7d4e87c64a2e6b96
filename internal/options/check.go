package options

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"podcount/internal/labels"
	"podcount/internal/leader"
)

// check returns an error that names the first flag that cannot be meant so. It works out what follows from the flags.
func (o *Options) check(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", strings.Join(rest, " "))
	}
	checks := []func() error{
		o.checkNamespaces,
		o.checkControllers,
		o.checkSelectors,
		o.checkLabels,
		o.checkWords,
		o.checkNumbers,
		o.checkListen,
		o.checkOnce,
		o.checkLease,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *Options) checkNamespaces() error {
	for _, given := range []struct{ flag, name string }{
		{"namespace", o.Namespace},
		{"leader-elect-resource-namespace", o.LeaseNamespace},
		{"manifest-namespace", o.home},
	} {
		if given.name == "" {
			continue
		}
		isOne := labels.CheckDNSName(given.name) == nil && !strings.Contains(given.name, ".") && len(given.name) <= 63
		if !isOne {
			return fmt.Errorf("-%s %q is no namespace's name", given.flag, given.name)
		}
	}
	return nil
}

func (o *Options) checkControllers() error {
	var names []string
	for _, c := range o.program.Controllers {
		names = append(names, c.Name)
		if o.isSwitchedOn(c) {
			o.Controllers = append(o.Controllers, c.Name)
		}
	}
	for word := range strings.SplitSeq(o.controllers, ",") {
		isKnown := word == "*" || slices.Contains(names, strings.TrimPrefix(word, "-"))
		if !isKnown {
			return fmt.Errorf("-controllers: there is no %q; there are %s", word, strings.Join(names, ", "))
		}
	}
	if len(o.Controllers) == 0 {
		return fmt.Errorf("-controllers %s leaves none to run", o.controllers)
	}
	return nil
}

// checkSelectors checks the selectors, and reads that of -total-nodes.
func (o *Options) checkSelectors() error {
	if _, err := labels.Parse(o.PodSelector); err != nil {
		return fmt.Errorf("-pod-selector: %w", err)
	}
	if err := labels.CheckFieldSelector(o.FieldSelector, "pods", o.program.PodFields); err != nil {
		return fmt.Errorf("-field-selector: %w", err)
	}
	if o.totalNodes == eitherRole {
		return nil
	}
	s, err := labels.Parse(o.totalNodes)
	if err != nil {
		return fmt.Errorf("-total-nodes: %w", err)
	}
	o.TotalNodes = NodeChoice{s}
	return nil
}

func (o *Options) checkLabels() error {
	if err := o.checkLabel("-total-label", o.TotalLabel); err != nil {
		return err
	}
	if o.NodeLabel != "" {
		if err := o.checkLabel("-node-label", o.NodeLabel); err != nil {
			return err
		}
	}
	if o.TotalLabel == o.NodeLabel {
		return fmt.Errorf("-node-label %s is the -total-label too: they need different keys", o.NodeLabel)
	}
	return nil
}

// checkLabel checks the key of a label that podcount is to write.
func (o *Options) checkLabel(flag, key string) error {
	if err := labels.CheckKey(key); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if slices.Contains(o.TotalNodes.Keys(), key) {
		return fmt.Errorf("-total-nodes: %s is the %s, which changes with what it says: "+
			"nodes would come and go for ever", key, flag)
	}
	domain, _, hasDomain := strings.Cut("."+key, "/")
	isReserved := strings.HasSuffix(domain, ".kubernetes.io") || strings.HasSuffix(domain, ".k8s.io")
	if hasDomain && isReserved {
		return fmt.Errorf("%s %s: labels under kubernetes.io and k8s.io are reserved for Kubernetes itself; "+
			"use a domain of your own", flag, key)
	}
	return nil
}

// checkWords checks the flags that take one of a few words.
func (o *Options) checkWords() error {
	if o.podEvents != "on" && o.podEvents != "off" {
		return fmt.Errorf("-pod-events %q: use on or off", o.podEvents)
	}
	o.PodEvents = o.podEvents == "on"
	if o.Wire != "protobuf" && o.Wire != "json" {
		return fmt.Errorf("-wire %q: use protobuf or json", o.Wire)
	}
	if !slices.Contains([]string{"auto", "text", "json"}, o.LogFormat) {
		return fmt.Errorf("-log-format %q: use auto, text or json", o.LogFormat)
	}
	return nil
}

func (o *Options) checkNumbers() error {
	if o.Interval <= 0 {
		return fmt.Errorf("-interval %v must be more than 0", o.Interval)
	}
	if o.OnceTimeout <= 0 {
		return fmt.Errorf("-once-timeout %v must be more than 0", o.OnceTimeout)
	}
	isQPS := o.QPS > 0 // not if it is NaN
	if o.Workers < 1 || o.Burst < 1 || !isQPS {
		return errors.New("-workers, -qps and -burst must be more than 0")
	}
	if o.Verbosity < 0 {
		return fmt.Errorf("-v %d must not be less than 0", o.Verbosity)
	}
	return nil
}

// checkOnce checks what goes together with -once, -prune and -manifest. -prune is a -once of one controller.
func (o *Options) checkOnce() error {
	if o.OnceTimeout != defaultOnceTimeout && !o.Once && !o.Prune {
		return errors.New("-once-timeout is for -once and -prune: add one of them, or leave it out")
	}
	if err := o.checkManifest(); err != nil {
		return err
	}
	if o.Prune {
		o.Once = true
		o.Controllers = []string{"pod-count"}
	}
	if o.Once && o.LeaderElect {
		return errors.New("-once and -prune do their work whoever leads: leave out -leader-elect")
	}
	return nil
}

func (o *Options) checkLease() error {
	if err := labels.CheckDNSName(o.LeaseName); err != nil {
		return fmt.Errorf("-leader-elect-resource-name: %w", err)
	}
	lease, renew, retry := o.LeaseDuration, o.RenewDeadline, o.RetryPeriod
	if lease > leader.MaxLeaseDuration {
		return fmt.Errorf("-leader-elect-lease-duration %v is more than a Lease can say, which is %v",
			lease, leader.MaxLeaseDuration)
	}
	if lease%time.Second != 0 {
		return fmt.Errorf("-leader-elect-lease-duration %v must be whole seconds: a Lease has no smaller ones", lease)
	}
	if lease <= renew || renew <= retry || renew <= retry+retry/5 || retry <= 0 {
		return fmt.Errorf("-leader-elect-lease-duration %v must be more than -leader-elect-renew-deadline %v, "+
			"that more than 1.2 × -leader-elect-retry-period %v, and that more than 0", lease, renew, retry)
	}
	return nil
}

// checkListen checks -listen, without asking any name server.
func (o *Options) checkListen() error {
	if o.Listen == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(o.Listen)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("-listen: %w: use [HOST]:PORT", err)
	}
	return nil
}
