package main

import (
	"context"
	"log"
	"net/http"
	"testing"

	"podcount/lab/course"
	"podcount/lab/trial"
)

func TestStagePassesTheRowsOfItsTable(t *testing.T) {
	course.Test(t, 11, func(ctx context.Context, c trial.Cluster) error {
		log.SetOutput(c.Output)
		environment := map[string]string{
			"KUBECONFIG": c.Kubeconfig,
			"LABEL":      c.Label,
			"NODE_LABEL": c.NodeLabel,
			"LEASE":      c.Lease,
			"IDENTITY":   c.Identity,
		}
		getenv := func(name string) string { return environment[name] }
		transport := &http.Transport{DialContext: c.Dial}
		defer transport.CloseIdleConnections()
		return start(ctx, getenv, transport)
	})
}
