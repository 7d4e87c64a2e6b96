package main

import (
	"context"
	"log"
	"net/http"
	"testing"
	"testing/synctest"

	"podcount/lab/course"
	"podcount/lab/trial"
)

func TestStagePassesTheRowsOfItsTable(t *testing.T) {
	course.Test(t, 9, func(ctx context.Context, c trial.Cluster) error {
		log.SetOutput(c.Output)
		client := &http.Client{Transport: c.Transport}
		run(ctx, cluster{c.URL, client}, labels{c.Label, c.NodeLabel})
		return nil
	})
}

func TestKeyAddedDuringWorkComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		q := &queue{
			stopped:  ctx.Done(),
			ready:    make(chan string),
			states:   map[string]state{},
			failures: map[string]backoff{},
		}
		q.add("a", 0)
		for range 2 {
			if key, isThere := q.take(ctx); key != "a" || !isThere {
				t.Fatalf("the key is %q", key)
			}
			q.add("a", 0)
			q.done("a", nil)
		}
	})
}
