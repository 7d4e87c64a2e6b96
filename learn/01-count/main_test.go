package main

import (
	"context"
	"net/http"
	"testing"

	"podcount/lab/course"
	"podcount/lab/trial"
)

func TestStagePassesTheRowsOfItsTable(t *testing.T) {
	course.Test(t, 1, func(ctx context.Context, c trial.Cluster) error {
		client := &http.Client{Transport: c.Transport}
		return run(ctx, cluster{c.URL, client}, c.Output)
	})
}
