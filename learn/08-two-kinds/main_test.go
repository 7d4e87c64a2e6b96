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
	course.Test(t, 8, func(ctx context.Context, c trial.Cluster) error {
		log.SetOutput(c.Output)
		client := &http.Client{Transport: c.Transport}
		run(ctx, cluster{c.URL, client}, labels{c.Label, c.NodeLabel})
		return nil
	})
}
