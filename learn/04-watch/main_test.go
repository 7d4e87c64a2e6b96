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
	course.Test(t, 4, func(ctx context.Context, c trial.Cluster) error {
		log.SetOutput(c.Output)
		client := &http.Client{Transport: c.Transport}
		return run(ctx, cluster{c.URL, client}, c.Label)
	})
}
